#include "oracle.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "oracle_model.h"

namespace wader::testing {
namespace {

using namespace oracle;

// What a layer remembers of the tokens before.
struct Past {
  std::vector<Vector> keys, values;  // [t] (kv_heads · head_dim)
  std::vector<Vector> conv_inputs;   // the last kernel − 1, oldest first
  std::vector<Matrix> s;             // [value head] (dk, dv)
};

// ---- Arithmetic ----

double dot(std::span<const double> a, std::span<const double> b) {
  // Four sums, because a single one would wait for each addition.
  double sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= a.size(); i += 4)
    for (size_t j = 0; j < 4; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void add_scaled(double scale, std::span<const double> x, std::span<double> y) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += scale * x[i];
}

std::span<double> head_of(Vector& x, size_t head, size_t dim) {
  return std::span(x).subspan(head * dim, dim);
}

Vector multiply(const Matrix& m, std::span<const double> x) {
  Vector y(m.rows);
  for (size_t i = 0; i < m.rows; ++i) y[i] = dot(m.row(i), x);
  return y;
}

Vector project(const Linear& linear, std::span<const double> x) {
  Vector y = multiply(linear.weight, x);
  if (!linear.bias.empty()) add_scaled(1, linear.bias, y);
  return y;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double silu(double x) {
  return x * sigmoid(x);
}
double softplus(double x) {
  return x > 30 ? x : std::log1p(std::exp(x));
}

void rms_norm(std::span<double> x, const Vector& weight, double eps) {
  const double mean_square = dot(x, x) / static_cast<double>(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = x[i] / std::sqrt(mean_square + eps) * weight[i];
}

Vector rms_normed(Vector x, const Vector& weight, double eps) {
  rms_norm(x, weight, eps);
  return x;
}

void l2_norm(std::span<double> x) {
  const double square = dot(x, x);
  for (double& value : x) value /= std::sqrt(square + 1e-6);
}

// Softmax over `logits` and, where given, a sink that takes its share and passes nothing on.
Vector softmax(Vector logits, std::optional<double> sink = std::nullopt) {
  double largest = *std::max_element(logits.begin(), logits.end());
  if (sink) largest = std::max(largest, *sink);
  double sum = sink ? std::exp(*sink - largest) : 0;
  for (double& value : logits) sum += value = std::exp(value - largest);
  for (double& value : logits) value /= sum;
  return logits;
}

void rotate(const Rope& rope, size_t position, std::span<double> x) {
  const size_t half = rope.inverse_frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * rope.inverse_frequencies[i];
    const double cos = std::cos(angle) * rope.magnitude, sin = std::sin(angle) * rope.magnitude;
    const double low = x[i], high = x[i + half];
    x[i] = low * cos - high * sin;
    x[i + half] = high * cos + low * sin;
  }
}

// ---- The parts of a layer, for one token ----

Vector attend(const Attention& a, const Rope& rope, double eps, const Vector& x, Past& past) {
  const size_t position = past.keys.size();
  Vector q = project(a.q, x), k = project(a.k, x);
  const auto prepare = [&](Vector& vector, const Vector& norm) {
    for (size_t h = 0; h < vector.size() / a.head_dim; ++h) {
      const auto head = head_of(vector, h, a.head_dim);
      if (!norm.empty()) rms_norm(head, norm, eps);
      rotate(rope, position, head);
    }
  };
  prepare(q, a.q_norm);
  prepare(k, a.k_norm);
  past.keys.push_back(k);
  past.values.push_back(project(a.v, x));

  const size_t first = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  Vector mixed(a.heads * a.head_dim);
  for (size_t h = 0; h < a.heads; ++h) {
    const size_t kv = h / (a.heads / a.kv_heads);
    Vector scores;
    for (size_t t = first; t <= position; ++t)
      scores.push_back(dot(head_of(q, h, a.head_dim), head_of(past.keys[t], kv, a.head_dim)) /
                       std::sqrt(static_cast<double>(a.head_dim)));
    const Vector p = a.sinks.empty() ? softmax(scores) : softmax(scores, a.sinks[h]);
    for (size_t t = first; t <= position; ++t)
      add_scaled(p[t - first], head_of(past.values[t], kv, a.head_dim),
                 head_of(mixed, h, a.head_dim));
  }
  if (a.gate) {
    const Vector gate = project(*a.gate, x);
    for (size_t i = 0; i < mixed.size(); ++i) mixed[i] *= sigmoid(gate[i]);
  }
  return project(a.o, mixed);
}

// Causal depthwise convolution over time, then SiLU; keeps the input for the tokens to come.
Vector convolve(const Matrix& conv, const Vector& input, Past& past) {
  const size_t kernel = conv.columns;
  past.conv_inputs.resize(std::max(past.conv_inputs.size(), kernel - 1), Vector(input.size()));
  past.conv_inputs.push_back(input);
  Vector output(input.size());
  for (size_t c = 0; c < output.size(); ++c) {
    for (size_t j = 0; j < kernel; ++j) output[c] += conv.row(c)[j] * past.conv_inputs[j][c];
    output[c] = silu(output[c]);
  }
  past.conv_inputs.erase(past.conv_inputs.begin());
  return output;
}

// S ← exp(g) S; δ = β (v − Sᵀk); S ← S + k δᵀ; y = Sᵀq.
Vector delta_step(Matrix& s, double g, double beta, std::span<const double> q,
                  std::span<const double> k, std::span<const double> v) {
  for (double& value : s.values) value *= std::exp(g);
  Vector delta(v.begin(), v.end());
  for (size_t i = 0; i < s.rows; ++i) add_scaled(-k[i], s.row(i), delta);
  for (double& value : delta) value *= beta;
  Vector y(s.columns);
  for (size_t i = 0; i < s.rows; ++i) {
    add_scaled(k[i], delta, head_of(s.values, i, s.columns));
    add_scaled(q[i], s.row(i), y);
  }
  return y;
}

Vector delta_net(const DeltaNet& d, double eps, const Vector& x, Past& past) {
  past.s.resize(d.value_heads, {d.dk, d.dv, Vector(d.dk * d.dv)});
  Vector qkv;
  for (const Linear* part : {&d.q, &d.k, &d.v}) {
    const Vector values = project(*part, x);
    qkv.insert(qkv.end(), values.begin(), values.end());
  }
  qkv = convolve(d.conv, qkv, past);
  for (size_t h = 0; h < 2 * d.key_heads; ++h) l2_norm(head_of(qkv, h, d.dk));
  for (size_t i = 0; i < d.key_heads * d.dk; ++i) qkv[i] /= std::sqrt(static_cast<double>(d.dk));

  const Vector a = project(d.a, x), b = project(d.b, x), z = project(d.z, x);
  Vector mixed;
  for (size_t h = 0; h < d.value_heads; ++h) {
    const size_t key_head = h / (d.value_heads / d.key_heads);
    const double g = -std::exp(d.a_log[h]) * softplus(a[h] + d.dt_bias[h]);
    const auto v = std::span(qkv).subspan(2 * d.key_heads * d.dk + h * d.dv, d.dv);
    Vector y = delta_step(past.s[h], g, sigmoid(b[h]), head_of(qkv, key_head, d.dk),
                          head_of(qkv, d.key_heads + key_head, d.dk), v);
    rms_norm(y, d.norm, eps);
    for (size_t i = 0; i < d.dv; ++i) mixed.push_back(y[i] * silu(z[h * d.dv + i]));
  }
  return project(d.out, mixed);
}

Vector feed_forward(const Ffn& f, const Vector& x) {
  const Vector gate = project(f.gate, x), up = project(f.up, x);
  Vector inner(gate.size());
  for (size_t i = 0; i < inner.size(); ++i) {
    if (f.limit) {
      const double g = std::min(gate[i], *f.limit);
      inner[i] = (std::clamp(up[i], -*f.limit, *f.limit) + 1) * g * sigmoid(1.702 * g);
    } else {
      inner[i] = silu(gate[i]) * up[i];
    }
  }
  return project(f.down, inner);
}

struct Routed {
  std::vector<int> ids;
  Vector weights;
  double margin;
};

// The softmax over all, renormalised over the chosen, is the softmax over the chosen.
Routed route(const Moe& moe, const Vector& x) {
  const Vector logits = project(moe.router, x);
  const Vector p = softmax(logits);
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return p[i] > p[j]; });
  Routed routed{{order.begin(), order.begin() + static_cast<ptrdiff_t>(moe.top_k)}, {}, INFINITY};
  if (moe.top_k < order.size())
    routed.margin = logits[order[moe.top_k - 1]] - logits[order[moe.top_k]];
  for (const int id : routed.ids) routed.weights.push_back(p[id]);
  const double sum = std::accumulate(routed.weights.begin(), routed.weights.end(), 0.0);
  for (double& weight : routed.weights) weight /= moe.renormalise ? sum : 1;
  return routed;
}

Vector mixture(const Moe& moe, const Routed& routed, const Vector& x) {
  Vector y(x.size());
  for (size_t j = 0; j < routed.ids.size(); ++j)
    add_scaled(routed.weights[j], feed_forward(moe.experts[routed.ids[j]], x), y);
  if (moe.shared)
    add_scaled(sigmoid(project(moe.shared_gate, x)[0]), feed_forward(*moe.shared, x), y);
  return y;
}

}  // namespace

Oracle Oracle::load(const std::filesystem::path& checkpoint,
                    const nlohmann::ordered_json& config_patch) {
  return Oracle(std::make_shared<Model>(load_model(checkpoint, config_patch)));
}

// ---- The pass ----

Oracle::Output Oracle::forward(std::span<const int32_t> tokens, size_t first_logits) const {
  const Model& m = *model_;
  const size_t layers = m.layers.size();
  std::vector<Past> past(layers);
  Output out;
  out.hidden.resize(layers + 1);
  out.router_ids.resize(layers);
  out.router_weights.resize(layers);
  out.router_margins.resize(layers);
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0 || static_cast<size_t>(tokens[t]) >= m.embedding.rows) fail("unknown token");
    const auto embedded = m.embedding.row(tokens[t]);
    Vector x(embedded.begin(), embedded.end());
    for (size_t i = 0; i < layers; ++i) {
      const Layer& layer = m.layers[i];
      out.hidden[i].push_back(x);

      const Vector u = rms_normed(x, layer.mixer_norm, m.norm_eps);
      add_scaled(1,
                 layer.attention ? attend(*layer.attention, m.rope, m.norm_eps, u, past[i])
                                 : delta_net(*layer.delta_net, m.norm_eps, u, past[i]),
                 x);

      const Vector w = rms_normed(x, layer.ffn_norm, m.norm_eps);
      if (layer.dense) {
        add_scaled(1, feed_forward(*layer.dense, w), x);
        continue;
      }
      const Routed routed = route(*layer.moe, w);
      add_scaled(1, mixture(*layer.moe, routed, w), x);
      out.router_ids[i].push_back(routed.ids);
      out.router_weights[i].push_back(routed.weights);
      out.router_margins[i].push_back(routed.margin);
    }
    rms_norm(x, m.final_norm, m.norm_eps);
    out.hidden[layers].push_back(x);
    if (t >= first_logits) out.logits.push_back(multiply(m.head, x));
  }
  return out;
}

}  // namespace wader::testing
