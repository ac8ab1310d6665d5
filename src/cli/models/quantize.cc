// weft quantize: converts a model to another type, as one GGUF file.
#include "quantize/quantize.h"

#include <algorithm>
#include <map>

#include "base/deadline.h"
#include "base/printable.h"
#include "cli/command_line/output_path.h"
#include "cli/commands.h"
#include "model_files/weight_file.h"

namespace weft::cli {
namespace {

constexpr const char* kQuantizeFooter =
    "IN is a GGUF file (any part of a split file), a Hugging Face folder or synthetic:NAME. OUT\n"
    "is one GGUF file, which llama.cpp loads, too. Mixes (Q4_K_M, Q3_K_L, ...) follow\n"
    "llama-quantize. Norms, biases and routers keep their type. A row that the type's blocks do\n"
    "not divide gets another type of about the same size (docs/quantize.md). IQ1, IQ2, IQ3_XXS\n"
    "and IQ3_XS need --imatrix.\n\n"
    "Weft writes OUT.part and renames it when it is complete, so OUT is never partial.\n\n"
    "Examples:\n"
    "  weft quantize model-f16.gguf model-q4.gguf Q4_K_M\n"
    "  weft quantize ~/models/Qwen3-8B qwen3-8b-q6.gguf Q6_K -t 8\n"
    "  weft quantize model-f16.gguf out.gguf Q4_K_M --dry-run       # which tensor gets what\n"
    "  weft quantize model-f16.gguf out.gguf Q3_K_M --imatrix model.imatrix.gguf\n"
    "  weft quantize model-f16.gguf out.gguf Q4_K_S --tensor 'blk\\.[0-3]\\.ffn_down=Q6_K' \\\n"
    "      --output-type Q8_0\n"
    "  weft quantize model-q4.gguf model-f16.gguf F16 --allow-requantize";

struct QuantizeFlags {
    std::string in, out, type, imatrix, output_type, embedding_type;
    std::vector<std::string> rules;
    int threads = 0;
    bool pure = false, allow_requantize = false, dry_run = false, force = false, json = false;
};

// "REGEX=TYPE", split at the last '='.
Result<quantize::TensorRule> ParseRule(const std::string& words) {
    const size_t at = words.rfind('=');
    if (at == std::string::npos || at == 0) {
        return MakeError(ErrorCode::kUsage, "--tensor '{}': expected REGEX=TYPE", words);
    }
    WEFT_ASSIGN(const DType type, quantize::FindTensorType(words.substr(at + 1)));
    return quantize::TensorRule{words.substr(0, at), type};
}

Result<quantize::QuantizeOptions> ParseOptions(const QuantizeFlags& flags) {
    quantize::QuantizeOptions options;
    WEFT_ASSIGN(options.type, quantize::FindFileType(flags.type));
    for (const std::string& words : flags.rules) {
        WEFT_ASSIGN(quantize::TensorRule rule, ParseRule(words));
        options.rules.push_back(std::move(rule));
    }
    if (!flags.output_type.empty()) {
        WEFT_ASSIGN(options.output, quantize::FindTensorType(flags.output_type));
    }
    if (!flags.embedding_type.empty()) {
        WEFT_ASSIGN(options.embedding, quantize::FindTensorType(flags.embedding_type));
    }
    options.pure = flags.pure;
    options.allow_requantize = flags.allow_requantize;
    return options;
}

std::map<std::string_view, uint64_t> QuantizeBytesByType(const quantize::QuantizePlan& plan) {
    std::map<std::string_view, uint64_t> bytes;
    for (const quantize::PlannedTensor& tensor : plan.tensors) {
        bytes[Info(tensor.to).name] += tensor.bytes;
    }
    return bytes;
}

// The plan and the result, for --json.
Json QuantizeJson(const QuantizeFlags& flags, const model_files::ModelSource& source,
                  const quantize::QuantizePlan& plan) {
    Json types = Json::object();
    for (const auto& [name, bytes] : QuantizeBytesByType(plan)) types[std::string(name)] = bytes;
    Json json = {{"in", flags.in},
                 {"out", flags.out},
                 {"type", plan.type.name},
                 {"tensors", plan.tensors.size()},
                 {"bytes_in", source.TotalBytes()},
                 {"bytes_out", plan.bytes},
                 {"bytes_by_type", types},
                 {"fallen_back", plan.fallen_back},
                 {"without_importance", plan.without_importance}};
    if (!flags.dry_run) return json;
    Json tensors = Json::array();
    for (const quantize::PlannedTensor& tensor : plan.tensors) {
        tensors.push_back({{"name", tensor.from->name},
                           {"from", Info(tensor.from->dtype).name},
                           {"to", Info(tensor.to).name},
                           {"bytes", tensor.bytes},
                           {"fell_back", tensor.fell_back}});
    }
    json["plan"] = std::move(tensors);
    return json;
}

void PrintPlan(const quantize::QuantizePlan& plan) {
    for (const quantize::PlannedTensor& tensor : plan.tensors) {
        PrintOut("  {:<36} {:>7} x {:<7} {:<5} -> {:<7} {:>12}{}\n", Printable(tensor.from->name),
                 tensor.from->cols, tensor.from->rows, Info(tensor.from->dtype).name,
                 Info(tensor.to).name, tensor.bytes,
                 tensor.fell_back ? "  (the type's blocks do not divide its rows)" : "");
    }
}

void PrintSummary(const QuantizeFlags& flags, const model_files::ModelSource& source,
                  const quantize::QuantizePlan& plan) {
    PrintOut("{} -> {}: {} as {}", BytesText(source.TotalBytes()), BytesText(plan.bytes), flags.in,
             plan.type.name);
    const char* separator = " (";
    for (const auto& [name, bytes] : QuantizeBytesByType(plan)) {
        PrintOut("{}{} {}", separator, name, BytesText(bytes));
        separator = ", ";
    }
    PrintOut(")\n");
    if (plan.fallen_back > 0) {
        PrintOut(
            "{} tensors get another type, because the type's blocks do not divide their rows: "
            "--dry-run lists them\n",
            plan.fallen_back);
    }
    if (plan.without_importance > 0) {
        PrintOut("{} tensors are not in the importance matrix: Weft rounds them without weights\n",
                 plan.without_importance);
    }
}

// The result must not replace any of the model's files, because it is made from them.
Status CheckPaths(const QuantizeFlags& flags, const model_files::ModelSource& source) {
    std::vector<std::string> inputs = {flags.in, flags.imatrix};
    for (const model_files::WeightFile* file : source.Files()) inputs.push_back(file->path());
    return CheckOutput({"OUT", flags.out}, inputs);
}

std::string ProgressText(uint64_t done, uint64_t all, double seconds) {
    const double share = all == 0 ? 1 : static_cast<double>(done) / static_cast<double>(all);
    constexpr int kBarWidth = 30;
    const int filled = static_cast<int>(share * kBarWidth);
    const double left = done == 0 ? 0 : seconds * (1 - share) / share;
    return fmt::format("[{:<{}}] {:3.0f} %  {} of {}  {:.0f} MiB/s  {:.0f} s left",
                       std::string(static_cast<size_t>(filled), '#'), kBarWidth, share * 100,
                       BytesText(done), BytesText(all),
                       static_cast<double>(done) / (1 << 20) / std::max(seconds, 1e-3), left);
}

double Since(int64_t begin_ns) {
    return SecondsSince(begin_ns);
}

Status RunQuantizeCommand(QuantizeFlags& flags) {
    WEFT_ASSIGN(quantize::QuantizeOptions options, ParseOptions(flags));
    WEFT_ASSIGN(const auto source, model_files::OpenModel(flags.in));
    if (!flags.dry_run) WEFT_TRY(CheckPaths(flags, *source));
    std::optional<quantize::Importance> importance;
    if (!flags.imatrix.empty()) {
        WEFT_ASSIGN(importance, quantize::Importance::Read(flags.imatrix));
        options.importance = &*importance;
    }
    WEFT_ASSIGN(const quantize::QuantizePlan plan, quantize::PlanQuantize(*source, options));
    if (!flags.json) {
        if (flags.dry_run) PrintPlan(plan);
        PrintSummary(flags, *source, plan);
        FlushOut();
    }
    Json json = flags.json ? QuantizeJson(flags, *source, plan) : Json();
    if (flags.dry_run) {
        if (flags.json) PrintJson(json);
        return {};
    }
    ProgressLine line;
    const int64_t begin_ns = NowNs();
    quantize::QuantizeRun run;
    run.threads = flags.threads > 0 ? flags.threads : static_cast<int>(AllowedCores().size());
    run.level = BestCpuLevel(DetectCpu());
    run.replace = flags.force;
    run.stop = CatchInterrupts();
    run.importance_name = flags.imatrix;
    run.progress = [&](uint64_t done, uint64_t all) {
        line.Show(ProgressText(done, all, Since(begin_ns)));
    };
    WEFT_ASSIGN(const uint64_t bytes, quantize::WriteQuantized(*source, plan, flags.out, run));
    line.Clear();
    const double seconds = Since(begin_ns);
    if (flags.json) {
        json["file_bytes"] = bytes;
        json["threads"] = run.threads;
        json["seconds"] = seconds;
        PrintJson(json);
    } else {
        PrintOut("{}: {} in {:.1f} s with {} threads\n", flags.out, BytesText(bytes), seconds,
                 run.threads);
    }
    return {};
}

}  // namespace

void AddQuantize(const Command& app, int& status) {
    auto flags = std::make_shared<QuantizeFlags>();
    const Command command = app.AddCommand(
        "quantize", "Convert a model to another type, as a GGUF file", kQuantizeFooter);
    command.AddOption("IN", flags->in, "GGUF file, Hugging Face folder, or synthetic:NAME")
        .Required();
    command.AddOption("OUT", flags->out, "Path of the GGUF file to write").Required();
    command.AddOption("TYPE", flags->type, "One of " + quantize::FileTypeNames()).Required();
    command.AddNumber("-t,--threads", flags->threads, 1, 1024, "Threads (default: all cores)");
    command.AddOption(
        "--imatrix", flags->imatrix,
        "Importance matrix of llama-imatrix (GGUF or .dat), which weights the rounding errors");
    command.AddEach("--tensor", flags->rules,
                    "REGEX=TYPE: give TYPE to tensors whose name matches; the first match counts; "
                    "may be repeated");
    command.AddOption("--output-type", flags->output_type,
                      "Type of output.weight, or of the embedding if the model ties them");
    command.AddOption("--embedding-type", flags->embedding_type, "Type of token_embd.weight");
    command.AddFlag("--pure", flags->pure, "Give every matrix this one type instead of a mix");
    command.AddFlag("--allow-requantize", flags->allow_requantize,
                    "Requantize tensors that are quantized already, at a loss of quality");
    command.AddFlag("--dry-run", flags->dry_run,
                    "Print the type of each tensor, and write nothing");
    command.AddFlag("--force", flags->force, "Replace an existing OUT");
    SetJsonCallback(command, flags, status, RunQuantizeCommand);
}

}  // namespace weft::cli
