#include "train/export.h"

#include <optional>

#include "hw/cpu.h"
#include "model_files/hf/export.h"
#include "model_files/lora/merged_folder.h"
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

WriteModelOptions ModelOptionsOf(const TrainExportOptions& words) {
    const std::string path = words.folder + (words.format == "hf" ? "/model" : "/model.gguf");
    return {path, words.format, words.type, words.threads, true, nullptr};
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

Status WriteGguf(const model_files::ModelSource& source, const quantize::FolderTokenizer& tokenizer,
                 const WriteModelOptions& words) {
    WEFT_ASSIGN(const quantize::QuantizePlan plan, PlanOf(source, words.type));
    quantize::QuantizeRun run;
    run.threads = ThreadsOf(words.threads);
    run.level = BestCpuLevel(DetectCpu());
    run.replace = words.replace;
    run.stop = words.stop;
    run.tokenizer = &tokenizer;
    const auto bytes = quantize::WriteQuantized(source, plan, words.path, run);
    return bytes.ok() ? Status() : Status(bytes.error());
}

SafeType SafeTypeOf(const std::string& type) {
    return FindSafeType(type).value_or(SafeType::kBF16);
}

Status WriteFolder(const model_files::ModelSource& source, const model_files::hf::FolderPlan& plan,
                   const WriteModelOptions& words) {
    model_files::hf::ExportOptions options;
    options.type = SafeTypeOf(words.type);
    options.threads = ThreadsOf(words.threads);
    options.level = BestCpuLevel(DetectCpu());
    options.replace = words.replace;
    options.stop = words.stop;
    return model_files::hf::ExportFolder(source, plan, words.path, options);
}

Result<ResultPlan> PlanModel(const model_files::ModelSource& source,
                             const WriteModelOptions& words) {
    WEFT_TRY(CheckExport({"", words.format, words.type, words.threads}));
    ResultPlan plan;
    if (words.format == "hf") {
        WEFT_ASSIGN(plan.folder,
                    model_files::hf::PlanFolder(source, words.path, SafeTypeOf(words.type)));
        plan.bytes = plan.folder.bytes;
        return plan;
    }
    WEFT_ASSIGN(plan.tokenizer, quantize::ReadFolderTokenizer(source));
    WEFT_ASSIGN(const quantize::QuantizePlan tensors, PlanOf(source, words.type));
    plan.bytes = tensors.bytes;
    return plan;
}

Status Write(const model_files::ModelSource& source, const ResultPlan& plan,
             const WriteModelOptions& words) {
    return words.format == "hf" ? WriteFolder(source, plan.folder, words)
                                : WriteGguf(source, plan.tokenizer, words);
}

}  // namespace

Status WriteMerged(const model_files::MergedSource& merged, const WriteModelOptions& words) {
    const auto plan = PlanModel(merged, words);
    const bool other = !plan.ok() && plan.error().code == ErrorCode::kUnsupported;
    if (!other || words.format != "hf" || merged.folder().empty()) {
        return plan.ok() ? Write(merged, *plan, words) : Status(plan.error());
    }
    WEFT_ASSIGN(const model_files::MergedFolder folder, model_files::MergeInFolder(merged));
    WEFT_ASSIGN(const model_files::hf::FolderPlan whole,
                model_files::PlanMergedFolder(folder, words.path, SafeTypeOf(words.type)));
    return WriteFolder(*folder.merged, whole, words);
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

Result<ResultPlan> PlanResult(const model_files::ModelSource& source,
                              const TrainExportOptions& words) {
    return PlanModel(source, ModelOptionsOf(words));
}

Result<std::string> ExportModel(const model_files::ModelSource& trained, const ResultPlan& plan,
                                const TrainExportOptions& words) {
    if (plan.adapter) {
        WEFT_TRY(model_files::WriteAdapter(trained, *plan.adapter, words.folder));
        return model_files::AdapterTensorsPath(words.folder);
    }
    const WriteModelOptions options = ModelOptionsOf(words);
    WEFT_TRY(Write(trained, plan, options));
    return options.path;
}

}  // namespace weft::train
