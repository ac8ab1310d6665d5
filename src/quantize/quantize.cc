#include "quantize/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <optional>

#include "base/deadline.h"
#include "base/log.h"
#include "base/on_threads.h"
#include "base/output_file.h"
#include "model_files/gguf_writer.h"
#include "model_files/read_tokenizer.h"
#include "model_files/write_tokenizer.h"
#include "tensor/encode.h"
#include "tokenizer/for_gguf.h"
#include "tokenizer/kept_json.h"

namespace weft::quantize {
namespace {

constexpr int64_t kStripElements = 1 << 18;
constexpr uint32_t kQuantizationVersion = 2;  // of the block layouts

void WriteMetadata(const model_files::ModelSource& source, const QuantizePlan& plan,
                   const QuantizeRun& run, model_files::GgufWriter& writer) {
    for (const model_files::MetaEntry& entry : source.meta().entries()) {
        const bool ours = entry.key == "general.file_type" || entry.key == "general.alignment" ||
                          entry.key == "general.quantization_version" ||
                          entry.key.starts_with("split.") ||
                          entry.key.starts_with("quantize.imatrix.");
        if (!ours) writer.Copy(entry);
    }
    writer.U32("general.quantization_version", kQuantizationVersion);
    writer.U32("general.file_type", plan.type.number);
    if (!run.importance_name.empty()) {
        writer.String("quantize.imatrix.file", run.importance_name);
    }
}

void WriteFolderTokenizer(const FolderTokenizer& tokenizer, const std::string& folder,
                          model_files::GgufWriter& writer) {
    if (tokenizer.none) writer.String("tokenizer.ggml.model", "none");
    if (!tokenizer.data) return;
    if (!tokenizer.kept) return model_files::WriteTokenizer(*tokenizer.data, writer);
    Log(LogLevel::kWarning,
        "{}: GGUF has no name for this tokenizer, so its tokenizer.json is stored in the file: "
        "Weft reads it, other programs find no tokenizer",
        folder);
    model_files::WriteKeptTokenizer(*tokenizer.kept, *tokenizer.data, writer);
}

// Rows of one tensor.
struct Strip {
    size_t tensor;
    int64_t row, rows;
};

// Hands out the strips of all tensors in order.
class Strips {
  public:
    explicit Strips(const QuantizePlan& plan) : plan_(plan) {}

    std::optional<Strip> Next() {
        const std::lock_guard lock(mutex_);
        if (tensor_ == plan_.tensors.size()) return std::nullopt;
        const model_files::TensorInfo& tensor = *plan_.tensors[tensor_].from;
        // At most the rows of one expert: each expert has its own importance weights.
        const int64_t each =
            std::max<int64_t>(1, tensor.dim_count > 2 ? tensor.dims[1] : tensor.rows);
        const int64_t most =
            std::max<int64_t>(1, kStripElements / std::max<int64_t>(1, tensor.cols));
        const int64_t rows = std::min({most, tensor.rows - row_, each - row_ % each});
        const Strip strip{tensor_, row_, rows};
        row_ += rows;
        if (row_ == tensor.rows) {
            ++tensor_;
            row_ = 0;
        }
        return strip;
    }

  private:
    const QuantizePlan& plan_;
    std::mutex mutex_;
    size_t tensor_ = 0;
    int64_t row_ = 0;
};

// The largest magnitude; not finite if any value is not. Compares bits, which have the order of the
// values.
float Largest(std::span<const float> values) {
    int32_t most = 0;
    for (const float value : values) {
        most = std::max(most, std::bit_cast<int32_t>(value) & 0x7fffffff);
    }
    return std::bit_cast<float>(most);
}

// A thread's buffers and its work on a strip.
class Worker {
  public:
    Worker(const model_files::ModelSource& source, const QuantizePlan& plan, CpuLevel level)
        : source_(source), plan_(plan), level_(level) {}

    // The strip's bytes in the new type; valid until the next call.
    Result<std::span<const std::byte>> Work(const Strip& strip) {
        const PlannedTensor& planned = plan_.tensors[strip.tensor];
        const model_files::TensorInfo& from = *planned.from;
        const auto rows = static_cast<size_t>(strip.rows);
        raw_.resize(rows * static_cast<size_t>(RowBytes(from.dtype, from.cols)));
        WEFT_TRY(source_.ReadRows(from, strip.row, strip.rows, 0, from.cols, raw_, nullptr));
        if (planned.to == from.dtype) return std::span<const std::byte>(raw_);
        floats_.resize(rows * static_cast<size_t>(from.cols));
        Decode(from.dtype, raw_, floats_, level_);
        WEFT_TRY(CheckValues(planned));
        out_.resize(rows * static_cast<size_t>(RowBytes(planned.to, from.cols)));
        Encode({planned.to, from.cols, floats_, ImportanceOf(planned, strip), out_}, level_);
        return std::span<const std::byte>(out_);
    }

  private:
    Status CheckValues(const PlannedTensor& planned) const {
        const float largest = Largest(floats_);
        if (!std::isfinite(largest)) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: tensor '{}' holds a weight that is infinite or not a number",
                             source_.name(), planned.from->name);
        }
        // Scales are F16, too.
        const bool halves =
            planned.to != DType::kF32 && planned.to != DType::kBF16 && planned.to != DType::kMXFP4;
        if (halves && largest > 65504.0f) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: tensor '{}' holds a weight above 65504, too large for {}. "
                             "--tensor 'NAME=BF16' keeps it",
                             source_.name(), planned.from->name, Info(planned.to).name);
        }
        return {};
    }

    static std::span<const float> ImportanceOf(const PlannedTensor& planned, const Strip& strip) {
        if (planned.importance == nullptr) return {};
        const auto cols = static_cast<size_t>(planned.from->cols);
        if (planned.importance->size() == cols) return *planned.importance;
        const auto expert = static_cast<size_t>(strip.row / planned.from->dims[1]);
        return std::span(*planned.importance).subspan(expert * cols, cols);
    }

    const model_files::ModelSource& source_;
    const QuantizePlan& plan_;
    CpuLevel level_;
    std::vector<std::byte> raw_, out_;
    std::vector<float> floats_;
};

// Runs the threads that write one file.
class Crew {
    static constexpr int64_t kShowNs = 100'000'000;

  public:
    Crew(const model_files::ModelSource& source, const QuantizePlan& plan, const QuantizeRun& run,
         const model_files::GgufWriter& writer, uint64_t data_begin, OutputFile& file)
        : source_(source),
          plan_(plan),
          run_(run),
          writer_(writer),
          data_begin_(data_begin),
          file_(file),
          strips_(plan) {}

    Status Run() {
        const auto threads = static_cast<size_t>(run_.threads);
        return OnThreads(threads, threads, [this](size_t) {
            const Status status = WorkOff();
            if (!status.ok()) failed_ = true;
            return status;
        });
    }

  private:
    Status WorkOff() {
        Worker worker(source_, plan_, run_.level);
        while (!failed_.load()) {
            if (run_.stop != nullptr && run_.stop->load()) {
                return MakeError(ErrorCode::kCancelled, "stopped; nothing was written");
            }
            const std::optional<Strip> strip = strips_.Next();
            if (!strip) break;
            WEFT_TRY(One(worker, *strip));
            Show();
        }
        return {};
    }

    void Show() {
        const std::unique_lock lock(shown_, std::try_to_lock);
        if (!lock.owns_lock() || NowNs() < next_ns_ || !run_.progress) return;
        next_ns_ = NowNs() + kShowNs;
        run_.progress(done_.load(), source_.TotalBytes());
    }

    Status One(Worker& worker, const Strip& strip) {
        WEFT_ASSIGN(const std::span<const std::byte> bytes, worker.Work(strip));
        const PlannedTensor& planned = plan_.tensors[strip.tensor];
        const uint64_t row_bytes = static_cast<uint64_t>(RowBytes(planned.to, planned.from->cols));
        const uint64_t at = data_begin_ + writer_.TensorOffset(strip.tensor) +
                            static_cast<uint64_t>(strip.row) * row_bytes;
        WEFT_TRY(file_.WriteAt(at, bytes));
        done_ += static_cast<uint64_t>(strip.rows) *
                 static_cast<uint64_t>(RowBytes(planned.from->dtype, planned.from->cols));
        return {};
    }

    const model_files::ModelSource& source_;
    const QuantizePlan& plan_;
    const QuantizeRun& run_;
    const model_files::GgufWriter& writer_;
    const uint64_t data_begin_;
    OutputFile& file_;
    Strips strips_;
    std::atomic<uint64_t> done_{0};
    std::atomic<bool> failed_{false};
    std::mutex shown_;
    int64_t next_ns_ = 0;  // when to show the progress again
};

}  // namespace

Result<FolderTokenizer> ReadFolderTokenizer(const model_files::ModelSource& source) {
    FolderTokenizer read;
    if (source.folder().empty()) return read;
    read.none = !model_files::HasTokenizer(source);
    if (read.none) return read;
    WEFT_ASSIGN(const model_files::TensorInfo* embedding, source.NeedTensor("token_embd.weight"));
    auto data = tokenizer::TokenizerForGguf(source.folder(), embedding->rows);
    if (data.ok()) {
        read.data = std::move(*data);
        return read;
    }
    if (data.error().code != ErrorCode::kUnsupported) return data.error();
    // Stores tokenizer.json itself, if Weft supports it.
    auto kept = tokenizer::ReadKeptJson(source.folder());
    if (!kept.ok()) {
        return kept.error().code == ErrorCode::kNotFound ? data.error() : kept.error();
    }
    WEFT_ASSIGN(const auto made, tokenizer::MakeTokenizer(*kept));
    read.data = made->data();
    read.kept = std::move(*kept);
    return read;
}

Result<uint64_t> WriteQuantized(const model_files::ModelSource& source, const QuantizePlan& plan,
                                const std::string& path, const QuantizeRun& run) {
    WEFT_CHECK(run.threads > 0);
    model_files::GgufWriter writer;
    WriteMetadata(source, plan, run, writer);
    FolderTokenizer read;
    if (run.tokenizer == nullptr) {
        WEFT_ASSIGN(read, ReadFolderTokenizer(source));
    }
    WriteFolderTokenizer(run.tokenizer == nullptr ? read : *run.tokenizer, source.folder(), writer);
    for (const PlannedTensor& planned : plan.tensors) {
        const auto dims =
            std::span(planned.from->dims).first(static_cast<size_t>(planned.from->dim_count));
        writer.Tensor(planned.from->name, planned.to, dims);
    }
    const std::vector<std::byte> header = writer.Header();
    const uint64_t bytes = header.size() + writer.DataBytes();
    WEFT_ASSIGN(OutputFile file, OutputFile::Create(path, bytes, run.replace));
    WEFT_TRY(file.WriteAt(0, header));
    WEFT_TRY(Crew(source, plan, run, writer, header.size(), file).Run());
    WEFT_TRY(file.Finish());
    return bytes;
}

}  // namespace weft::quantize
