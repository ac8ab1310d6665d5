#include "train/export.h"

#include <optional>

#include "hw/cpu.h"
#include "model_files/hf/export.h"
#include "quantize/quantize.h"

namespace weft::train {
namespace {

using model_files::hf::SafeType;

std::optional<SafeType> FindSafeType(const std::string& name) {
    for (const SafeType type : {SafeType::kF32, SafeType::kF16, SafeType::kBF16}) {
        if (model_files::hf::SafeTypeName(type) == name) return type;
    }
    return std::nullopt;
}

int ThreadsOf(int threads) {
    return threads > 0 ? threads : static_cast<int>(AllowedCores().size());
}

std::string ResultPath(const TrainExportOptions& words) {
    return words.folder + (words.format == "hf" ? "/model" : "/model.gguf");
}

Result<quantize::QuantizePlan> PlanOf(const model_files::ModelSource& source,
                                      const std::string& type) {
    quantize::QuantizeOptions options;
    WEFT_ASSIGN(options.type, quantize::FindFileType(type));
    options.allow_requantize = true;
    options.importance_advice =
        "this command accepts no importance matrix. Write --save-type F16 and give that file to "
        "'weft quantize IN OUT TYPE --imatrix FILE'";
    return quantize::PlanQuantize(source, options);
}

Status WriteGguf(const model_files::ModelSource& source, const WriteModelOptions& words) {
    WEFT_ASSIGN(const quantize::QuantizePlan plan, PlanOf(source, words.type));
    quantize::QuantizeRun run;
    run.threads = ThreadsOf(words.threads);
    run.level = BestCpuLevel(DetectCpu());
    run.replace = words.replace;
    run.stop = words.stop;
    const auto bytes = quantize::WriteQuantized(source, plan, words.path, run);
    return bytes.ok() ? Status() : Status(bytes.error());
}

Status WriteFolder(const model_files::ModelSource& source, const WriteModelOptions& words) {
    model_files::hf::ExportOptions options;
    options.type = FindSafeType(words.type).value_or(SafeType::kBF16);
    options.threads = ThreadsOf(words.threads);
    options.level = BestCpuLevel(DetectCpu());
    options.replace = words.replace;
    options.stop = words.stop;
    return model_files::hf::ExportFolder(source, words.path, options);
}

}  // namespace

Status WriteModel(const model_files::ModelSource& source, const WriteModelOptions& words) {
    WEFT_TRY(CheckExport({"", words.format, words.type, words.threads}));
    return words.format == "hf" ? WriteFolder(source, words) : WriteGguf(source, words);
}

Status CheckExport(const TrainExportOptions& words) {
    if (words.format == "hf" && !FindSafeType(words.type)) {
        return MakeError(ErrorCode::kUsage,
                         "--save-type {}: a Hugging Face folder has F32, F16 or BF16", words.type);
    }
    if (words.format == "hf") return {};
    if (words.format == "gguf") {
        const auto type = quantize::FindFileType(words.type);
        return type.ok() ? Status() : Status(type.error());
    }
    return MakeError(ErrorCode::kUsage, "--save-format {}: expected gguf or hf", words.format);
}

Result<uint64_t> PlanResult(const model_files::ModelSource& source,
                            const TrainExportOptions& words) {
    WEFT_TRY(CheckExport(words));
    if (words.format == "hf") {
        const SafeType type = FindSafeType(words.type).value_or(SafeType::kBF16);
        return model_files::hf::CheckExport(source, ResultPath(words), type);
    }
    WEFT_TRY(quantize::CheckMetadata(source));
    WEFT_ASSIGN(const quantize::QuantizePlan plan, PlanOf(source, words.type));
    return plan.bytes;
}

Result<std::string> ExportModel(const model_files::ModelSource& trained,
                                const TrainExportOptions& words, const std::atomic<bool>* stop) {
    const std::string path = ResultPath(words);
    WEFT_TRY(WriteModel(trained, {path, words.format, words.type, words.threads, true, stop}));
    return path;
}

}  // namespace weft::train
