#include "quantize/importance.h"

#include <algorithm>
#include <cmath>

#include "base/byte_codec.h"
#include "base/file.h"
#include "model_files/gguf.h"

namespace weft::quantize {
namespace {

constexpr uint64_t kMostBytes = uint64_t{4} << 30;
constexpr size_t kMostNameBytes = 1024;

}  // namespace

Status Importance::Add(std::string name, std::vector<float> sums,
                       const std::vector<float>& counts) {
    if (sums.empty() || counts.empty() || sums.size() % counts.size() != 0) {
        return MakeError(ErrorCode::kCorrupt, "{}: '{}' has {} sums and {} counts", path_, name,
                         sums.size(), counts.size());
    }
    const size_t cols = sums.size() / counts.size();
    for (size_t expert = 0; expert < counts.size(); ++expert) {
        const auto own = std::span(sums).subspan(expert * cols, cols);
        const bool wrong = std::ranges::any_of(
            own, [](float value) { return !(value >= 0) || !std::isfinite(value); });
        if (wrong || !std::isfinite(counts[expert])) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: '{}' holds a sum of squares that is negative or not finite",
                             path_, name);
        }
        double total = 0;
        for (const float value : own) total += value;
        if (!(counts[expert] > 0) || !(total > 0)) {  // an expert that was never used
            std::ranges::fill(own, 1.0f);
            continue;
        }
        // Normalized to a mean of 1; a column without activations still gets a small weight.
        const double mean = total / static_cast<double>(cols);
        for (float& value : own) value = std::max(1e-6f, static_cast<float>(value / mean));
    }
    entries_.insert_or_assign(std::move(name), std::move(sums));
    return {};
}

Status Importance::ReadGguf() {
    WEFT_ASSIGN(const model_files::Gguf file, model_files::Gguf::Open(path_));
    constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
    for (const model_files::TensorInfo& tensor : file.tensors()) {
        if (!tensor.name.ends_with(kSums)) continue;
        const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
        const model_files::TensorInfo* counts = file.FindTensor(name + std::string(kCounts));
        const bool floats =
            tensor.dtype == DType::kF32 && counts != nullptr && counts->dtype == DType::kF32;
        if (!floats) {
            return MakeError(ErrorCode::kCorrupt, "{}: '{}' needs a tensor {}{}; both must be F32",
                             path_, tensor.name, name, kCounts);
        }
        WEFT_ASSIGN(std::vector<float> sums, file.ReadFloats(tensor));
        WEFT_ASSIGN(const std::vector<float> calls, file.ReadFloats(*counts));
        WEFT_TRY(Add(name, std::move(sums), calls));
    }
    return {};
}

Status Importance::ReadOld(std::string_view bytes) {
    ByteReader reader(bytes);
    const auto count = reader.Take<int32_t>();
    const auto corrupt = [&](int32_t entry) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: not an importance matrix: entry {} of {} is truncated or invalid. "
                         "Expected a GGUF or .dat file from llama-imatrix",
                         path_, entry + 1, count);
    };
    if (count < 1) return corrupt(0);
    for (int32_t i = 0; i < count; ++i) {
        const auto name_bytes = reader.Take<uint32_t>();
        if (name_bytes == 0 || name_bytes > kMostNameBytes) return corrupt(i);
        std::string name(reader.RawText(name_bytes));
        const auto calls = reader.Take<int32_t>(), values = reader.Take<int32_t>();
        if (values < 1) return corrupt(i);
        auto sums = reader.TakeList<float>(static_cast<size_t>(values));
        if (!reader.ok()) return corrupt(i);
        WEFT_TRY(Add(std::move(name), std::move(sums), {static_cast<float>(std::max(calls, 1))}));
    }
    return {};
}

Result<Importance> Importance::Read(const std::string& path) {
    Importance importance(path);
    WEFT_ASSIGN(const std::string bytes, ReadTextFile(path, kMostBytes));
    if (bytes.starts_with("GGUF")) {
        WEFT_TRY(importance.ReadGguf());
    } else {
        WEFT_TRY(importance.ReadOld(bytes));
    }
    if (importance.size() == 0) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: not an importance matrix: it has no tensor NAME.in_sum2", path);
    }
    return importance;
}

const std::vector<float>* Importance::Find(const std::string& tensor) const {
    const auto found = entries_.find(tensor);
    return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace weft::quantize
