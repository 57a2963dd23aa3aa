// Repacker: moves weights from a checkpoint into a container through a few MiB of buffers, whatever
// the model's size. MXFP4 experts pass byte for byte; trunk matrices are quantised row by row.
#pragma once

#include <cstdint>
#include <vector>

#include "container/progress_meter.h"
#include "container/writer.h"
#include "install/plan.h"
#include "io/aligned_buffer.h"

namespace wader {

class Repacker {
 public:
  // `plan` outlives the repacker. Takes all the memory that repacking needs: one expert record and
  // a batch of trunk rows. over_budget when there is none.
  static Result<Repacker> create(const InstallPlan& plan);

  // Each begins, fills and finishes its file. corrupt for a NaN or infinity in the trunk or an
  // expert's bias and for the E8M0 scale byte 255, which is NaN: every one named by tensor, layer
  // and expert.
  Status repack_trunk(ContainerWriter& writer, ProgressMeter& meter);
  Status repack_layer(ContainerWriter& writer, uint32_t layer, ProgressMeter& meter);

  uint64_t source_bytes_read() const { return source_bytes_read_; }

 private:
  // Squared sums over one matrix: what it was, and what quantising did to it.
  struct QuantisationError {
    double signal = 0, noise = 0;
    void add(const float* exact, const float* stored, size_t count);
    Json snr_db() const;  // null when nothing was lost
  };

  explicit Repacker(const InstallPlan& plan) : plan_(&plan) {}

  Status repack_tensor(ContainerWriter& writer, size_t index, ProgressMeter& meter,
                       QuantisationError& error);
  Status read_batch(size_t index, uint64_t first_value, size_t count);
  Result<ContainerWriter::TrunkRows> quantise_batch(size_t index, size_t count,
                                                    QuantisationError& error);
  Result<ContainerWriter::TrunkRows> round_batch(size_t index, size_t count,
                                                 QuantisationError& error);
  Status read_section(uint32_t layer, uint32_t expert, const ExpertSection& section);

  const InstallPlan* plan_;
  AlignedBuffer record_;        // one expert; its padding is zeroed once and never written
  std::vector<std::byte> raw_;  // a batch of the source
  std::vector<float> values_;   // the same in f32
  std::vector<float> stored_;   // a row, or a batch, as the container will give it back
  std::vector<uint8_t> codes_;  // affine8
  std::vector<uint16_t> scales_, biases_;
  std::vector<uint16_t> rounded_;  // bf16
  uint64_t source_bytes_read_ = 0;
};

}  // namespace wader
