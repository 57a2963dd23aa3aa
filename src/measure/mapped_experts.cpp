#include "measure/mapped_experts.h"

#include <sys/mman.h>

#include <vector>

#include "base/error.h"
#include "io/file.h"

namespace wader {
namespace {

class Mapping {
 public:
  Mapping(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  const std::byte* data() const { return static_cast<const std::byte*>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

class MappedExperts final : public Experts {
 public:
  explicit MappedExperts(const Container& container)
      : spec_(container.spec()),
        record_bytes_(static_cast<size_t>(container.manifest().experts.stride_bytes)) {}

  Status map(const std::string& path) {
    ASSIGN_OR_RETURN(const File file, File::open(path, File::Mode::read));
    const size_t bytes = record_bytes_ * spec_.experts;
    void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
    if (data == MAP_FAILED) return errno_error(errno, fmt::format("{}: mapping it", path));
    layers_.emplace_back(data, bytes);
    return {};
  }

  void begin(uint32_t layer, std::span<const uint32_t> ids, std::span<const uint32_t>) override {
    layer_ = layers_[spec_.moe_layers_before(layer)].data();
    ids_ = ids;
    next_ = 0;
  }
  std::span<const uint32_t> ids() const override { return ids_; }
  void predict(uint32_t, std::span<const uint32_t>, Certainty) override {}
  Result<std::optional<Lease>> next() override { return next_resident(); }
  std::optional<Lease> next_resident() override {
    if (next_ == ids_.size()) return {};
    const std::byte* const record = layer_ + ids_[next_] * record_bytes_;
    return Lease(this, {record, record_bytes_}, 0, next_++);
  }
  void end() override {}

 private:
  void release(uint32_t) override {}

  const ArchitectureSpec& spec_;
  const size_t record_bytes_;
  std::vector<Mapping> layers_;  // moe layers
  const std::byte* layer_ = nullptr;
  std::span<const uint32_t> ids_;
  uint32_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<Experts>> map_experts(const Container& container) {
  if (container.in_place())
    return unsupported_error(
        "{}: a record in place is several runs of a file's bytes, which no mapping shows as one; "
        "--mmap needs a container, which `wader install` makes",
        container.in_place()->directory.string());
  auto experts = std::make_unique<MappedExperts>(container);
  for (const std::filesystem::path& path : container.expert_files())
    RETURN_IF_ERROR(experts->map(path.string()));
  return std::unique_ptr<Experts>(std::move(experts));
}

}  // namespace wader
