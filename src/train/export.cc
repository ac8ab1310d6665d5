#include "train/export.h"

#include <optional>

#include "formats/hf/export.h"
#include "formats/quantize/quantize.h"
#include "hw/cpu.h"

namespace weft::train {
namespace {

using formats::hf::SafeType;

std::optional<SafeType> FindSafeType(const std::string& name) {
    for (const SafeType type : {SafeType::kF32, SafeType::kF16, SafeType::kBF16}) {
        if (formats::hf::SafeTypeName(type) == name) return type;
    }
    return std::nullopt;
}

int ThreadsOf(const ExportWords& words) {
    return words.threads > 0 ? words.threads : static_cast<int>(AllowedCores().size());
}

Result<std::string> ExportGguf(const formats::ModelSource& trained, const ExportWords& words,
                               const std::atomic<bool>* stop) {
    std::string path = words.folder + "/model.gguf";
    formats::QuantizeOptions options;
    WEFT_ASSIGN(options.type, formats::FindFileType(words.type));
    options.allow_requantize = true;
    WEFT_ASSIGN(const formats::QuantizePlan plan, formats::PlanQuantize(trained, options));
    formats::QuantizeRun run;
    run.threads = ThreadsOf(words);
    run.level = BestCpuLevel(DetectCpu());
    run.replace = true;
    run.stop = stop;
    WEFT_TRY(formats::WriteQuantized(trained, plan, path, run));
    return path;
}

Result<std::string> ExportFolder(const formats::ModelSource& trained, const ExportWords& words,
                                 const std::atomic<bool>* stop) {
    std::string path = words.folder + "/model";
    formats::hf::ExportOptions options;
    options.type = FindSafeType(words.type).value_or(SafeType::kBF16);
    options.threads = ThreadsOf(words);
    options.level = BestCpuLevel(DetectCpu());
    options.stop = stop;
    WEFT_TRY(formats::hf::ExportFolder(trained, path, options));
    return path;
}

}  // namespace

Status CheckExport(const ExportWords& words) {
    if (words.format == "hf" && !FindSafeType(words.type)) {
        return MakeError(ErrorCode::kUsage,
                         "--save-type {}: a Hugging Face folder has F32, F16 or BF16", words.type);
    }
    if (words.format == "hf") return {};
    if (words.format == "gguf") {
        const auto type = formats::FindFileType(words.type);
        return type.ok() ? Status() : Status(type.error());
    }
    return MakeError(ErrorCode::kUsage, "--save-format {}: expected gguf or hf", words.format);
}

Result<std::string> ExportModel(const formats::ModelSource& trained, const ExportWords& words,
                                const std::atomic<bool>* stop) {
    WEFT_TRY(CheckExport(words));
    return words.format == "hf" ? ExportFolder(trained, words, stop)
                                : ExportGguf(trained, words, stop);
}

}  // namespace weft::train
