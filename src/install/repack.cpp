#include "install/repack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "base/error.h"
#include "container/manifest.h"
#include "install/read_order.h"

namespace wader {
namespace {

// Quantised in 0.1 ms: the least that is worth waking a thread for.
constexpr uint64_t kThreadValues = 16 * 1024;
constexpr std::array kMatrices = {ExpertMatrix::gate_up, ExpertMatrix::down};

RowPlanes planes_of(std::span<std::byte> bytes, const RowBytes& row, uint64_t rows) {
  return {bytes.first(rows * row.codes), bytes.subspan(rows * row.codes, rows * row.scales),
          bytes.subspan(rows * (row.codes + row.scales), rows * row.biases)};
}

RowPlanes row_of(const RowPlanes& planes, const RowBytes& row, uint64_t r) {
  return {planes.codes.subspan(r * row.codes, row.codes),
          planes.scales.subspan(r * row.scales, row.scales),
          planes.biases.subspan(r * row.biases, row.biases)};
}

// Elements are counted over the whole tensor, row by row, in the plane that the fault is in.
Error fault_error(const RowFault& fault, const SourceRow& source, uint64_t row, uint32_t cols,
                  const std::string& path, const std::string& what) {
  using Kind = RowFault::Kind;
  const MatrixFormat& format = source.piece->format;
  const uint64_t unit = is_affine(format.dtype) ? format.group : kMxfp4Block;
  switch (fault.kind) {
    case Kind::value:
      return corrupt_error("{}: {} has a NaN or an infinity at element {}", path, what,
                           row * cols + fault.at);
    case Kind::scale:
      return corrupt_error("{}: {}.scales has a NaN or an infinity at element {}", path, what,
                           row * (cols / unit) + fault.at);
    case Kind::bias:
      return corrupt_error("{}: {}.group_biases has a NaN or an infinity at element {}", path, what,
                           row * (cols / unit) + fault.at);
    case Kind::e8m0_nan:
      return corrupt_error("{}: {}.scales has the E8M0 scale 255, which is NaN, at element {}",
                           path, what, row * (cols / unit) + fault.at);
    case Kind::out_of_range:
      return corrupt_error("{}: {} has values that BF16 cannot hold, in row {}", path, what, row);
    case Kind::none:
      break;
  }
  UNREACHABLE("no fault");
}

// Sums as numbers that read back as the same ones: JSON has the shortest text that does.
Json loss_to_json(const RowLoss& loss) {
  return Json::array({loss.signal, loss.noise});
}

RowLoss loss_from_json(const Json& note, const char* key) {
  if (!json_has(note, key) || !note[key].is_array() || note[key].size() != 2 ||
      !note[key][0].is_number() || !note[key][1].is_number())
    return {};
  return {note[key][0].get<double>(), note[key][1].get<double>()};
}

void take_matrices(const Json& note, Json& matrices) {
  if (!json_has(note, "matrices") || !note["matrices"].is_object()) return;
  for (const auto& [name, facts] : note["matrices"].items()) matrices[name] = facts;
}

}  // namespace

Json Repacker::MatrixFacts::to_json() const {
  Json snr_db = nullptr;  // nothing was lost
  if (loss.noise > 0) snr_db = std::round(1000 * std::log10(loss.signal / loss.noise)) / 100;
  return {{"source", format_name(source)}, {"stored", format_name(stored)}, {"snr_db", snr_db}};
}

Result<Repacker> Repacker::create(const InstallPlan& plan, int threads) {
  Repacker repacker(plan);
  const Manifest& manifest = plan.container.manifest;
  const ArchitectureSpec& spec = manifest.spec;
  uint64_t staging = plan.expert_source_bytes, batch = 0, rows = 0, cols = 0;
  for (size_t i = 0; i < manifest.trunk.size(); ++i) {
    const TrunkTensor& t = manifest.trunk[i];
    const uint64_t n = trunk_batch_rows(plan, i);
    staging = std::max(staging, n * longest_row_bytes(plan.trunk_sources[i]));
    batch = std::max(batch, n * row_bytes(t.format, t.cols()).value().total());
    rows = std::max(rows, n);
    cols = std::max(cols, t.cols());
  }
  uint64_t expert_rows = 0;
  for (const ExpertMatrix matrix : kMatrices) {
    const MatrixShape shape = expert_matrix_shape(spec, matrix);
    expert_rows += 2 * uint64_t{shape.rows};  // the bias can be a row of one value each
    cols = std::max<uint64_t>({cols, shape.cols, shape.rows});
  }
  ASSIGN_OR_RETURN(repacker.staging_, AlignedBuffer::allocate(staging));
  ASSIGN_OR_RETURN(repacker.record_, AlignedBuffer::allocate(manifest.experts.stride_bytes));
  ASSIGN_OR_RETURN(repacker.written_, AlignedBuffer::allocate(manifest.experts.stride_bytes));
  ASSIGN_OR_RETURN(repacker.batch_, AlignedBuffer::allocate(batch));
  repacker.rows_.resize(std::max(rows, expert_rows));
  repacker.losses_.resize(repacker.rows_.size());
  repacker.pool_ = std::make_unique<ThreadPool>(threads);
  for (int i = 0; i < repacker.pool_->size(); ++i)
    repacker.threads_.push_back({RowScratch(cols), {}, 0});
  return repacker;
}

Status Repacker::store(const Batch& batch, const std::string& what, RowLoss& loss) {
  const RowBytes bytes = batch.row();
  for (ThreadState& thread : threads_) thread.fault = {};
  const auto grain = static_cast<int64_t>(kThreadValues / batch.cols + 1);
  pool_->parallel_for(static_cast<int64_t>(batch.rows.size()), grain, [&](ThreadPool::Slice slice) {
    ThreadState& thread = threads_[static_cast<size_t>(slice.worker)];
    for (auto r = static_cast<uint64_t>(slice.begin); r < static_cast<uint64_t>(slice.end); ++r) {
      losses_[r] = {};
      const RowFault fault = store_row(batch.rows[r], batch.cols, batch.add, batch.target,
                                       row_of(batch.out, bytes, r), thread.scratch, losses_[r]);
      if (fault.kind == RowFault::Kind::none) continue;
      if (thread.fault.kind == RowFault::Kind::none || r < thread.fault_row) {
        thread.fault = fault;
        thread.fault_row = r;
      }
      return;
    }
  });
  // Every slice went to its first fault: the first of all is the one a single thread would have
  // met.
  const ThreadState* first = nullptr;
  for (const ThreadState& thread : threads_)
    if (thread.fault.kind != RowFault::Kind::none &&
        (first == nullptr || thread.fault_row < first->fault_row))
      first = &thread;
  if (first != nullptr) {
    const SourceRow& source = batch.rows[first->fault_row];
    return fault_error(first->fault, source, batch.first_row + first->fault_row, batch.cols,
                       plan_->checkpoint->files()[source.piece->codes.file]->path(), what);
  }
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    loss.signal += losses_[r].signal;
    loss.noise += losses_[r].noise;
  }
  return {};
}

Status Repacker::repack_trunk(ContainerWriter& writer, size_t end, ProgressMeter& meter) {
  uint64_t first_row = 0;
  RowLoss loss;
  if (!tensors_done_) {
    const ContainerWriter::TrunkStart& start = writer.trunk_start();
    for (const Json& note : start.notes) take_matrices(note, matrices_);
    for (const auto& [name, facts] : matrices_.items()) noted_.insert(name);
    if (start.rows > 0) loss = loss_from_json(start.notes.back(), "loss");
    first_row = start.rows;
    tensors_done_ = start.tensors;
  }
  const size_t all = plan_->trunk.size();
  if (end < all && end <= *tensors_done_) {
    if (first_row > 0) tensors_done_.reset();  // in the middle of one that comes later
    return {};
  }
  RETURN_IF_ERROR(writer.begin_trunk());
  for (; *tensors_done_ < end; ++*tensors_done_) {
    const size_t i = plan_->container.trunk_order[*tensors_done_];
    MatrixFacts facts{plan_->trunk_sources[i].format, writer.manifest().trunk[i].format,
                      std::exchange(loss, {})};
    RETURN_IF_ERROR(repack_tensor(writer, i, std::exchange(first_row, 0), meter, facts.loss));
    if (plan_->trunk[i].role != TrunkRole::matrix) continue;
    matrices_[plan_->trunk[i].name] = facts.to_json();
    if (*tensors_done_ + 1 < end) RETURN_IF_ERROR(keep_trunk(writer, {}, false));
  }
  RETURN_IF_ERROR(plan_->check_source_unchanged());
  if (end < all) {
    RETURN_IF_ERROR(keep_trunk(writer, {}, true));
    writer.pause_trunk();
    return {};
  }
  RETURN_IF_ERROR(writer.finish_trunk(matrices_));
  plan_->source_kept(plan_->source_position());
  return {};
}

// Notes of the trunk's file: the matrices that were done since the note before, and the sums of the
// one that is not.
Status Repacker::keep_trunk(ContainerWriter& writer, const RowLoss& loss, bool always) {
  if (!always && !writer.keep_due()) return {};
  Json fresh = Json::object();
  for (const auto& [name, facts] : matrices_.items())
    if (!noted_.contains(name)) fresh[name] = facts;
  for (const auto& [name, facts] : fresh.items()) noted_.insert(name);
  RETURN_IF_ERROR(writer.keep({{"matrices", std::move(fresh)}, {"loss", loss_to_json(loss)}}));
  plan_->source_kept(plan_->source_position());
  return {};
}

Status Repacker::repack_tensor(ContainerWriter& writer, size_t index, uint64_t first_row,
                               ProgressMeter& meter, RowLoss& loss) {
  const TrunkTensor& t = writer.manifest().trunk[index];
  const uint64_t row_bytes_all = row_bytes(t.format, t.cols()).value().total();
  const auto take = [&](uint64_t first, const ContainerWriter::TrunkRows& rows) -> Status {
    const uint64_t n = rows.bytes() / row_bytes_all;
    RETURN_IF_ERROR(writer.append_trunk(rows));
    // With a row left at least: a tensor that is done has its facts in the note after it.
    if (first + n < t.rows()) RETURN_IF_ERROR(keep_trunk(writer, loss, false));
    return meter.advance(phase_, rows.bytes());
  };
  return make_tensor(index, first_row, loss, take);
}

Status Repacker::make_tensor(size_t index, uint64_t first_row, RowLoss& loss,
                             const TakeRows& take) {
  const TrunkTensor& t = plan_->container.manifest.trunk[index];
  const TensorSource& source = plan_->trunk_sources[index];
  const RowBytes row = row_bytes(t.format, t.cols()).value();
  const std::string what = fmt::format("trunk tensor {}", t.name);
  const uint64_t batch = trunk_batch_rows(*plan_, index);
  for (uint64_t done = first_row; done < t.rows();) {
    const uint64_t n = std::min(batch, t.rows() - done);
    const auto rows = std::span(rows_).first(n);
    const SourceReader::Request request{&source, done, rows};
    RETURN_IF_ERROR(reader_.read({&request, 1}, staging_.span()));
    const RowPlanes out = planes_of(batch_.span(), row, n);
    RETURN_IF_ERROR(store({rows, static_cast<uint32_t>(t.cols()), done, source.add, t.format, out},
                          what, loss));
    RETURN_IF_ERROR(take(done, {out.codes, out.scales, out.biases}));
    done += n;
  }
  return {};
}

Result<std::span<const std::byte>> Repacker::make_expert(uint32_t layer, uint32_t expert) {
  const ExpertLayout& layout = plan_->container.manifest.experts;
  std::array<MatrixFacts, 2> facts{};
  for (const ExpertMatrix matrix : kMatrices)
    facts[static_cast<size_t>(matrix)].stored = layout.format.of(matrix);
  RETURN_IF_ERROR(repack_expert(layer, expert, std::nullopt, facts));
  return std::span<const std::byte>(record_.span().first(layout.stride_bytes));
}

Status Repacker::repack_layer(ContainerWriter& writer, uint32_t layer, ProgressMeter& meter) {
  const ContainerWriter::LayerStart start = writer.layer_start(layer);
  RETURN_IF_ERROR(writer.begin_layer(layer));
  phase_ = "experts";
  const ExpertLayout& layout = writer.manifest().experts;
  const ExpertFormat source = plan_->checkpoint->expert_format();
  std::array<MatrixFacts, 2> facts{};
  for (const ExpertMatrix matrix : kMatrices)
    facts[static_cast<size_t>(matrix)] = {source.of(matrix), layout.format.of(matrix), {}};
  if (start.experts > 0) {
    facts[0].loss = loss_from_json(start.note, "gate_up");
    facts[1].loss = loss_from_json(start.note, "down");
  }
  const std::vector<uint32_t>& order = plan_->container.expert_order.at(layer);
  for (uint32_t n = start.experts; n < order.size(); ++n) {
    // An expert is written while the next one is made: what can be kept is what stood before this
    // one.
    const std::array<MatrixFacts, 2> before = facts;
    const size_t position = plan_->source_position();
    std::swap(record_, written_);
    const auto next = n + 1 < order.size() ? std::optional(order[n + 1]) : std::nullopt;
    RETURN_IF_ERROR(repack_expert(layer, order[n], next, facts));
    RETURN_IF_ERROR(writer.append_expert_later(record_.span().first(layout.stride_bytes)));
    if (n > start.experts && writer.keep_due()) {
      RETURN_IF_ERROR(writer.keep(
          {{"gate_up", loss_to_json(before[0].loss)}, {"down", loss_to_json(before[1].loss)}}));
      plan_->source_kept(position);
    }
    RETURN_IF_ERROR(meter.advance(phase_, layout.stride_bytes));
  }
  RETURN_IF_ERROR(plan_->check_source_unchanged());
  RETURN_IF_ERROR(
      writer.finish_layer({{"gate_up", facts[0].to_json()}, {"down", facts[1].to_json()}}));
  plan_->source_kept(plan_->source_position());
  return {};
}

RowPlanes Repacker::part_planes(const InstallPlan::ExpertPart& part) {
  const ExpertLayout& layout = plan_->container.manifest.experts;
  const MatrixPlanes& at = layout.planes(part.matrix);
  const auto record = record_.span();
  if (part.is_bias)
    return {record.subspan(at.linear_bias.value(),
                           part.source.rows * part.source.cols * sizeof(uint16_t)),
            {},
            {}};
  const RowBytes row = row_bytes(layout.format.of(part.matrix), part.source.cols).value();
  const uint64_t rows = part.source.rows;
  return {record.subspan(at.codes, rows * row.codes), record.subspan(at.scales, rows * row.scales),
          record.subspan(at.biases, rows * row.biases)};
}

Status Repacker::repack_expert(uint32_t layer, uint32_t expert, std::optional<uint32_t> next,
                               std::array<MatrixFacts, 2>& facts) {
  using Part = InstallPlan::ExpertPart;
  ASSIGN_OR_RETURN(const std::vector<Part> parts, plan_->expert_parts(layer, expert));
  const auto requests = expert_requests(parts, rows_);
  RETURN_IF_ERROR(reader_.read(requests, staging_.span()));
  if (next) {
    ASSIGN_OR_RETURN(const std::vector<Part> next_parts, plan_->expert_parts(layer, *next));
    reader_.prefetch(expert_requests(next_parts, rows_));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    MatrixFacts& of = facts[static_cast<size_t>(part.matrix)];
    const std::string what = fmt::format("layer {}, expert {}: {}{}", layer, expert,
                                         part.matrix == ExpertMatrix::gate_up ? "gate_up" : "down",
                                         part.is_bias ? ".bias" : "");
    RETURN_IF_ERROR(
        store({requests[i].rows, static_cast<uint32_t>(part.source.cols), 0, part.source.add,
               part.is_bias ? DType::bf16 : of.stored, part_planes(part)},
              what, of.loss));
  }
  return {};
}

}  // namespace wader
