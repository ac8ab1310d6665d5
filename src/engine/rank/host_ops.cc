#include "engine/rank/host_ops.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/deadline.h"
#include "base/file.h"
#include "base/on_threads.h"

namespace weft::engine {
namespace {

// Parses all of `text` as a number. Returns false if the text is not a number.
template <typename T>
bool Parse(std::string_view text, T& value) {
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && at == end && !text.empty();
}

constexpr std::string_view kLayers = "cpu:";

Result<program::HostOps> ParseExperts(std::string_view word, int64_t layers) {
    program::HostOps host_ops;
    if (word.empty() || word == "gpu") return host_ops;
    host_ops.fill = word == "auto";
    if (word == "cpu") host_ops.expert_layers = program::HostOps::kAllLayers;
    if (word == "cpu" || host_ops.fill) return host_ops;
    if (word.starts_with(kLayers)) {
        int64_t first = 0;
        if (Parse(word.substr(kLayers.size()), first) && first >= 0) {
            host_ops.expert_layers = std::min(first, program::HostOps::kAllLayers);
            return host_ops;
        }
    }
    double share = 0;
    if (Parse(word, share) && share >= 0 && share <= 1) {
        host_ops.expert_layers = std::llround((1 - share) * static_cast<double>(layers));
        return host_ops;
    }
    return MakeError(ErrorCode::kUsage,
                     "--experts {}: expected gpu, cpu, auto, cpu:N (the experts of the first N "
                     "layers on the processor), or the GPU's share of the layers, from 0 to 1",
                     word.substr(0, 80));
}

}  // namespace

Status CheckExperts(std::string_view experts) {
    const auto parsed = ParseExperts(experts, 1);
    return parsed.ok() ? Status() : Status(parsed.error());
}

Result<program::HostOps> HostOpsOf(const Job& job, const model::Hyper& hyper) {
    WEFT_ASSIGN(program::HostOps host_ops, ParseExperts(job.experts, hyper.layers));
    if (host_ops.expert_layers > 0 && hyper.moe.experts == 0) {
        return MakeError(ErrorCode::kUsage,
                         "--experts {}: the model has no experts. --gpu-layers N leaves whole "
                         "layers to the processor",
                         job.experts);
    }
    host_ops.fill = host_ops.fill && hyper.moe.experts > 0;
    host_ops.stream_rows = job.stream_rows;
    // Only the processor reads experts from the drive.
    if (job.weights_on_drive && job.experts.empty() && hyper.moe.experts > 0) {
        host_ops.expert_layers = program::HostOps::kAllLayers;
    }
    if (job.gpu_layers >= 0) host_ops.layers = std::max<int64_t>(0, hyper.layers - job.gpu_layers);
    return host_ops;
}

ProgramBytes BytesOf(const program::Program& program, const program::HostOps& host_ops) {
    const std::vector<bool> on_host = program::ChooseHostOps(program, host_ops);
    std::vector<bool> counted(program.values.size());
    const auto is_new = [&](program::ValueId id) {
        return id != program::kNoValue && !counted[static_cast<size_t>(id)];
    };
    ProgramBytes bytes;
    uint64_t host_page = 0, device_page = 0;
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const program::Op& op = program.ops[i];
        for (const program::ValueId id : op.inputs) {
            if (!is_new(id) || program.value(id).storage != program::Storage::kState) continue;
            counted[static_cast<size_t>(id)] = true;
            (on_host[i] ? host_page : device_page) +=
                static_cast<uint64_t>(program::StateBytes(program.value(id), program::kLeastPage));
        }
        if (!program::IsOfExperts(op) || !is_new(program::WeightOf(op))) continue;
        const program::Value& weight = program.value(program::WeightOf(op));
        counted[static_cast<size_t>(program::WeightOf(op))] = true;
        bytes.experts += static_cast<uint64_t>(RowBytes(weight.dtype, weight.shape.Elements(0, 0)));
    }
    // (A cache may have one row for several tokens.)
    bytes.device_token = (device_page + program::kLeastPage - 1) / program::kLeastPage;
    bytes.host_token = (host_page + program::kLeastPage - 1) / program::kLeastPage;
    return bytes;
}

uint64_t HostWeightBytes(const model_files::ModelSource& source, const program::HostOps& host_ops) {
    program::HostOps all = host_ops;
    if (all.fill) all.expert_layers = program::HostOps::kAllLayers;
    uint64_t bytes = 0;
    for (const model_files::TensorInfo& tensor : source.tensors()) {
        if (all.HasWeight(tensor.name)) bytes += tensor.bytes;
    }
    return bytes;
}

double MeasureDrive(const model_files::ModelSource& source) {
    constexpr size_t kReaders = 8, kPieces = 64;
    constexpr int64_t kPieceBytes = 1 << 20, kMostNs = 250'000'000;
    const auto largest =
        std::ranges::max_element(source.tensors(), {}, &model_files::TensorInfo::bytes);
    if (largest == source.tensors().end()) return 0;
    const model_files::TensorInfo& tensor = *largest;
    const int64_t row_bytes = RowBytes(tensor.dtype, tensor.cols);
    const int64_t rows = std::max<int64_t>(1, kPieceBytes / row_bytes);
    const int64_t pieces = tensor.rows / rows;
    if (pieces < static_cast<int64_t>(kReaders)) return 0;
    const int64_t begin_ns = NowNs();
    std::atomic<int64_t> bytes{0};
    const Status read = OnThreads(kReaders, kPieces, [&](size_t i) -> Status {
        if (NowNs() - begin_ns > kMostNs) return {};
        const DirectReads direct;
        std::vector<std::byte> out(static_cast<size_t>(rows * row_bytes));
        const int64_t piece = static_cast<int64_t>(i) * pieces / static_cast<int64_t>(kPieces);
        WEFT_TRY(source.ReadRows(tensor, piece * rows, rows, 0, tensor.cols, out, nullptr));
        bytes += std::ssize(out);
        return {};
    });
    return read.ok() ? static_cast<double>(bytes) / SecondsSince(begin_ns) : 0;
}

}  // namespace weft::engine
