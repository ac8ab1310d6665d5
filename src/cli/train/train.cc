// weft train: fine-tunes a model on a data set, on one or more ranks.
#include "cli/train/train.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/deadline.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/command_line/duration.h"
#include "cli/commands.h"
#include "cli/plan/plan_train.h"
#include "cli/terminal/loading_line.h"
#include "cli/train/train_ds.h"
#include "hw/cpu.h"
#include "model/shard.h"
#include "net/fabric.h"
#include "train/export.h"
#include "train/flops.h"
#include "train/log/log_keeper.h"
#include "train/log/mlflow_run.h"
#include "train/log/step_command.h"
#include "train/log/wandb_folder.h"
#include "train/output_folder.h"
#include "train/run.h"
#include "train/stop.h"
#include "train/write_result.h"

namespace weft::cli {
namespace {

constexpr const char* kTrainFooter =
    "Matrices use --dtype, their gradients --grad-dtype, and vectors (such as norms) float32.\n"
    "The optimizer keeps float32 weights; a quantized model is dequantized first. The result is\n"
    "DIR/model.gguf, or the folder DIR/model with --save-format hf; 'weft run' and 'weft serve'\n"
    "load either. With --lora the model stays unchanged, and the result is an adapter in DIR,\n"
    "which 'weft merge' adds to the weights. --json prints one line per step and one at the\n"
    "end.\n\n"
    "SIGTERM, SIGINT, SIGUSR1, SIGHUP (to any rank) and --time-limit write a checkpoint and end\n"
    "the job with status 75; --resume auto continues it. A second signal ends the job at once.\n"
    "A terminal or ssh session that closes sends SIGHUP; run under nohup to ignore it. Exit\n"
    "status: 0 done, 1 failed, 2 usage error, 3 a rank was lost, 75 stopped with a checkpoint,\n"
    "130 stopped at once.\n\n"
    "Examples:\n"
    "  weft train model.gguf --data qca.jsonl --output-dir tuned --epochs 3 --lr 2e-5\n"
    "  weft train model.gguf --data qca.jsonl --output-dir tuned --local 2 --zero 1\n"
    "  weft train model-q4.gguf --data qca.jsonl --output-dir tuned --lora 16 --lora-alpha 32\n"
    "  weft train models/abacus --from-scratch --data train.jsonl --output-dir new --lr 1e-3\n"
    "  weft train data inspect model.gguf --data qca.jsonl";

// Longest silence at the terminal.
constexpr int64_t kMostSilenceNs = 10'000'000'000;

struct TrainFlags {
    CommonFlags common;
    train::TrainJob job;
    std::string output, schedule = "constant", optimizer = "adamw", dtype = "bf16";
    std::string loss_scale = "dynamic", muon_adjust = "match_rms_adamw";
    train::TrainExportOptions save;
    std::vector<double> betas = {0.9, 0.999};
    std::string ds_config, sample_file, time_limit;
    std::string on_step, on_eval, run_name;
    std::vector<std::string> report_to = {"tensorboard"};
    int64_t step_timeout_s = 30;
    bool overwrite = false, no_output = false, begun_anew = false;
    train::DsTelling telling;
    Command command;  // to query which flags were given
};

train::TrainExportOptions ExportOf(const TrainFlags& flags) {
    train::TrainExportOptions words = flags.save;
    words.folder = flags.output;
    words.threads = flags.job.trainer.threads;
    return words;
}

// Reports the run to the terminal, to --json and to the logs beside the model.
class Teller final : public train::TrainListener {
  public:
    explicit Teller(const TrainFlags& flags) : flags_(flags), live_(TakesEscapes(STDERR_FILENO)) {}
    ~Teller() override { progress_.Keep(); }
    Teller(const Teller&) = delete;
    Teller& operator=(const Teller&) = delete;

    Status TakeFolder() {
        if (flags_.output.empty()) return {};
        const train::TrainerOptions& trainer = flags_.job.trainer;
        auto taken = train::OutputFolder::Take({flags_.output,
                                                flags_.job.save.resume,
                                                flags_.overwrite,
                                                flags_.begun_anew,
                                                {trainer.model, trainer.lora.from}});
        if (!taken.ok()) return taken.error();
        folder_.emplace(std::move(*taken));
        return {};
    }

    // Shows progress until OnStart.
    void ShowLoading(cluster::ClusterOptions& options) {
        loading_.emplace("loading " + flags_.job.trainer.model, options);
    }

    // next: the update of the next row; later rows of an earlier run are removed.
    void OpenLog(int64_t next) {
        train::TrainLogOptions options;
        if (!flags_.output.empty()) {
            options.csv = flags_.output + "/log.csv";
            if (Reports("tensorboard")) options.tensorboard = flags_.output;
        }
        const train::DsTelling& telling = flags_.telling;
        if (!telling.csv.empty()) options.csv = telling.csv;
        if (!telling.tensorboard.empty()) options.tensorboard = telling.tensorboard;
        options.first_step = next;
        options.columns = {"loss", "grad_norm", "lr", "tokens", "tokens_per_s"};
        if (StepHasPerplexity()) options.columns.emplace_back("perplexity");
        if (Evaluates()) options.columns.emplace_back("eval_loss");
        if (Evaluates() && HasPerplexity()) options.columns.emplace_back("eval_perplexity");
        for (const std::string& name : ValueNames()) {
            options.columns.push_back(name);
            if (Evaluates()) options.columns.push_back("eval_" + name);
        }
        if (IsF16()) options.columns.insert(options.columns.end(), {"loss_scale", "skipped"});
        log_.Open(std::move(options));
        if (!std::exchange(writers_added_, true)) AddWriters();
    }

    // Ends the logs. done: the result is written.
    void EndLog(bool done) {
        progress_.Keep();
        log_.End(done);
    }

    Status OnStart(const train::Trainer& trainer, int64_t next, int64_t steps,
                   double peak_flops_s) override {
        loading_.reset();
        peak_flops_s_ = peak_flops_s;
        recompute_ = trainer.options().recompute;
        const DType gradients = train::GradientTypeOf(trainer.options(), trainer.layout().dp);
        grad_dtype_ = train::FlagOf(gradients);
        OpenLog(next);
        if (next_ == 0) LogConfig(trainer, steps);
        next_ = next;
        told_ = 0;
        elapsed_s_ = 0;
        flops_per_token_ = train::FlopsPerToken(trainer);
        if (flags_.common.json) return {};
        const double mib = 1024.0 * 1024.0;
        const backend::MemoryUse use = trainer.memory();
        const backend::DeviceInfo& device = trainer.device();
        Say("{:.1f} million parameters, {} steps{}; a rank holds {:.0f} MiB of {}, "
            "{:.0f} MiB of activations{}\n",
            static_cast<double>(trainer.state().parameters()) * 1e-6, steps,
            device.uses_host_cores ? "" : fmt::format(" on {} ({})", device.name, device.hardware),
            static_cast<double>(use.weight_bytes) / mib,
            flags_.job.trainer.optimizer_folder.empty() ? "weights, gradients and optimizer state"
                                                        : "weights and gradients",
            static_cast<double>(use.arena_bytes) / mib,
            recompute_ == "none" ? "" : " (--recompute " + recompute_ + ")");
        return {};
    }

    void OnStep(const train::StepLine& line) override {
        const train::LogRow row = RowOf(line);
        if (flags_.common.json) {
            PostJson(row.line);
        } else {
            PrintLine(line);
        }
        for (const train::SampleText& sample : line.samples) LogSample(line.step, sample);
        log_.Add(row);
    }

    Status CheckResult(const model_files::ModelSource& source) override {
        if (flags_.output.empty() || flags_.job.trainer.lora.on()) return {};
        WEFT_ASSIGN(result_, train::PlanResult(source, ExportOf(flags_)));
        return {};
    }

    // (An existing result stays until the new one is complete.)
    Result<uint64_t> ResultBytes(const train::Trainer& trainer) override {
        if (folder_) WEFT_TRY(folder_->Clear());
        if (flags_.job.trainer.lora.on()) {
            WEFT_ASSIGN(result_, train::PlanAdapterResult(trainer));
        }
        return result_.bytes;
    }

    double peak_flops_s() const { return peak_flops_s_; }
    const std::string& recompute() const { return recompute_; }
    const std::string& grad_dtype() const { return grad_dtype_; }

    Status OnTrained(const model_files::ModelSource& trained, bool alone) override {
        progress_.Keep();
        if (flags_.output.empty()) return {};
        WEFT_ASSIGN(const std::string path,
                    train::WriteResult(trained, result_, ExportOf(flags_), alone));
        if (!flags_.common.json) Say("wrote {}\n", path);
        return {};
    }

    // Prints even without a reader: a closed terminal or a full disk does not end the job.
    template <typename... Args>
    static void Say(fmt::format_string<Args...> format, Args&&... args) {
        PrintErr(format, std::forward<Args>(args)...);
    }

  private:
    bool Reports(std::string_view to) const { return std::ranges::count(flags_.report_to, to) > 0; }

    void AddWriters() {
        const nlohmann::json settings = nlohmann::json::parse(train::TrainJobToJson(flags_.job));
        if (Reports("wandb")) {
            log_.AddWriter("--report-to wandb", std::make_unique<train::WandbFolder>(
                                                    flags_.output, flags_.run_name, settings));
        }
        if (Reports("mlflow")) {
            log_.AddWriter("--report-to mlflow",
                           std::make_unique<train::MlflowRun>(flags_.run_name, settings));
        }
        const auto add = [&](const char* flag, const std::string& command, bool evaluations) {
            if (command.empty()) return;
            log_.AddWriter(flag, std::make_unique<train::StepCommand>(
                                     flag, command, flags_.step_timeout_s, evaluations));
        };
        add("--on-step", flags_.on_step, false);
        add("--on-eval", flags_.on_eval, true);
    }

    // The perplexity per token, e^loss, is defined for the cross-entropy.
    bool HasPerplexity() const {
        return flags_.job.trainer.preference.loss == train::LossKind::kTokens;
    }

    // (With further terms, e^loss of a step is no perplexity. Evaluations have no such terms.)
    bool StepHasPerplexity() const {
        const train::TrainerOptions& trainer = flags_.job.trainer;
        return HasPerplexity() && trainer.preference.label_smoothing == 0 && trainer.z_loss == 0;
    }

    train::LogRow RowOf(const train::StepLine& line) const {
        const bool f16 = flags_.job.trainer.dtype == DType::kF16;
        train::LogRow row;
        row.step = line.step;
        row.samples = line.samples;
        row.line = JsonOf(line);
        // (A plot cannot show infinity.)
        row.values = {line.loss, line.skipped ? NAN : line.grad_norm, line.learning_rate,
                      static_cast<double>(line.tokens), line.tokens_per_s()};
        const double eval_loss = line.eval_loss.value_or(NAN);
        if (StepHasPerplexity()) row.values.push_back(std::exp(line.loss));
        if (Evaluates()) row.values.push_back(eval_loss);
        if (Evaluates() && HasPerplexity()) row.values.push_back(std::exp(eval_loss));
        const size_t more = ValueNames().size();
        for (size_t i = 0; i < more; ++i) {
            row.values.push_back(i < line.values.size() ? line.values[i] : NAN);
            if (!Evaluates()) continue;
            row.values.push_back(i < line.eval_values.size() ? line.eval_values[i] : NAN);
        }
        if (!f16) return row;
        row.values.push_back(line.loss_scale.value_or(NAN));
        row.values.push_back(line.skipped ? 1.0 : 0.0);
        return row;
    }

    Json JsonOf(const train::StepLine& line) const {
        Json json = {{"step", line.step},           {"loss", line.loss},
                     {"grad_norm", line.grad_norm}, {"lr", line.learning_rate},
                     {"tokens", line.tokens},       {"tokens_per_s", line.tokens_per_s()},
                     {"flops_per_s", FlopsOf(line)}};
        if (StepHasPerplexity()) json["perplexity"] = std::exp(line.loss);
        if (line.eval_loss) json["eval_loss"] = *line.eval_loss;
        if (line.eval_loss && HasPerplexity()) json["eval_perplexity"] = std::exp(*line.eval_loss);
        if (line.aux_loss) json["aux_loss"] = *line.aux_loss;
        const std::vector<std::string> names = ValueNames();
        for (size_t i = 0; i < names.size(); ++i) {
            if (i < line.values.size()) json[names[i]] = line.values[i];
            if (i < line.eval_values.size()) json["eval_" + names[i]] = line.eval_values[i];
        }
        if (line.loss_scale) {
            json["loss_scale"] = *line.loss_scale;
            json["skipped"] = line.skipped;
        }
        return json;
    }

    bool Evaluates() const { return flags_.job.data.test_split > 0; }
    std::vector<std::string> ValueNames() const { return train::ValueNames(flags_.job.trainer); }
    // The value of this name, shown as `text`; "": the loss does not have it.
    std::string ValueText(const train::StepLine& line, const char* name, const char* text) const {
        const std::vector<std::string> names = ValueNames();
        const auto at = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
        return at < line.values.size() ? fmt::format("  {} {:.4f}", text, line.values[at]) : "";
    }
    bool IsF16() const { return flags_.job.trainer.dtype == DType::kF16; }

    void LogConfig(const train::Trainer& trainer, int64_t steps) const {
        if (flags_.ds_config.empty()) return;
        train::TrainJob job = flags_.job;
        job.trainer.recompute = trainer.options().recompute;
        const Json config = train::ResolvedJson(job, flags_.save, trainer.layout(), steps);
        if (flags_.common.json) {
            PostJson({{"config", config}});
        } else {
            Say("config: {}\n", config.dump());
        }
    }

    // Prints one terminal line per line of the text, and escapes its control characters.
    void LogSample(int64_t step, const train::SampleText& sample) const {
        if (flags_.common.json) {
            PostJson(
                {{"step", step}, {"sample", {{"prompt", sample.prompt}, {"text", sample.text}}}});
            return;
        }
        std::string shown = "  > ";
        for (const char c : PrintableLines(sample.prompt + "|" + sample.text)) {
            shown += c;
            if (c == '\n') shown += "    ";
        }
        Say("{}\n", shown);
    }

    double FlopsOf(const train::StepLine& line) const {
        return flops_per_token_ * line.tokens_per_s();
    }

    void PrintLine(const train::StepLine& line) {
        elapsed_s_ += line.seconds;
        ++told_;
        // Even if a DeepSpeed file requests few lines, the first line is shown, and then one line
        // every few seconds. A line on a terminal is rewritten in place.
        const bool asked = line.step % flags_.telling.print_every == 0 || line.step == line.steps;
        const bool due = asked || told_ == 1 || NowNs() - printed_ns_ >= kMostSilenceNs;
        // (The next line covers this one.)
        const bool alone = !line.eval_loss && !line.skipped && line.samples.empty();
        if (!due && !live_ && alone) return;
        printed_ns_ = NowNs();
        const double left =
            elapsed_s_ / static_cast<double>(told_) * static_cast<double>(line.steps - line.step);
        std::string aux = line.aux_loss ? fmt::format("  balance {:.4f}", *line.aux_loss) : "";
        aux += ValueText(line, "mean_token_accuracy", "accuracy") +
               ValueText(line, "rewards/margins", "margin") + ValueText(line, "reward", "reward") +
               ValueText(line, "completions/mean_length", "length");
        std::string scale;
        if (line.loss_scale) scale = fmt::format("  scale {:g}", *line.loss_scale);
        if (line.skipped) scale += "  overflow: skipped";
        std::string eval;
        if (line.eval_loss) eval = fmt::format("  test loss {:.4f}", *line.eval_loss);
        if (line.eval_loss && HasPerplexity()) {
            eval += fmt::format("  perplexity {:.2f}", std::exp(*line.eval_loss));
            if (!line.eval_values.empty()) {
                eval += fmt::format("  accuracy {:.4f}", line.eval_values.front());
            }
        }
        std::string share;
        if (peak_flops_s_ > 0) {
            share = fmt::format(" ({:.0f} % of the peak)", 100 * FlopsOf(line) / peak_flops_s_);
        }
        const std::string text = fmt::format(
            "step {}/{}  loss {:.4f}{}  norm {:.3f}  lr {:.2e}  {:.0f} tok/s  {:.3g} GFLOP/s{}  {}"
            "  {:.0f} s left{}{}",
            line.step, line.steps, line.loss, aux, line.grad_norm, line.learning_rate,
            line.tokens_per_s(), FlopsOf(line) * 1e-9, share, BytesText(ResidentBytes()), left,
            scale, eval);
        if (live_ && alone) return progress_.Show(text);
        progress_.Clear();
        Say("{}\n", text);
    }

    const TrainFlags& flags_;
    bool live_;
    ProgressLine progress_;
    int64_t next_ = 0, told_ = 0;  // first update, and number of updates reported since
    double elapsed_s_ = 0;
    double flops_per_token_ = 0, peak_flops_s_ = 0;
    std::string recompute_, grad_dtype_;
    int64_t printed_ns_ = 0;
    train::ResultPlan result_;
    train::LogKeeper log_;
    bool writers_added_ = false;
    std::optional<train::OutputFolder> folder_;
    std::optional<LoadingLine> loading_;
};

Status ResolveOptimizer(TrainFlags& flags) {
    train::UpdateOptions& update = flags.job.trainer.update;
    const auto kind = train::FindUpdate(flags.optimizer);
    if (!kind) {
        return MakeError(ErrorCode::kUsage, "--optimizer {}: expected {}", flags.optimizer,
                         train::kUpdateNames);
    }
    update.kind = *kind;
    using train::UpdateKind;
    const bool decays =
        *kind == UpdateKind::kAdamW || *kind == UpdateKind::kAdam8bit || *kind == UpdateKind::kMuon;
    if (!decays && !flags.command.Given("--weight-decay")) update.weight_decay = 0;
    const bool muon = *kind == UpdateKind::kMuon;
    if (muon && !flags.command.Given("--momentum")) update.momentum = 0.95;
    if (*kind == UpdateKind::kLion && !flags.command.Given("--betas")) update.beta2 = 0.99;
    update.muon_adam_size = flags.muon_adjust == "match_rms_adamw";
    return {};
}

Status ResolveLossScale(TrainFlags& flags) {
    if (flags.loss_scale == "dynamic") return {};
    double& fixed = flags.job.trainer.loss_scale.fixed;
    const char* const end = flags.loss_scale.data() + flags.loss_scale.size();
    const auto [at, error] = std::from_chars(flags.loss_scale.data(), end, fixed);
    if (error == std::errc() && at == end && fixed > 0) {
        return train::CheckLossScale(flags.job.trainer.loss_scale);
    }
    return MakeError(ErrorCode::kUsage, "--loss-scale {}: expected dynamic, or a number above 0",
                     flags.loss_scale);
}

Status CheckReports(const TrainFlags& flags) {
    const std::vector<std::string>& all = flags.report_to;
    for (const std::string& to : all) {
        const bool known = to == "tensorboard" || to == "wandb" || to == "mlflow";
        if (known || (to == "none" && all.size() == 1)) continue;
        return MakeError(ErrorCode::kUsage,
                         "--report-to {}: expected some of tensorboard, wandb and mlflow, or none",
                         fmt::join(all, ","));
    }
    if (std::ranges::count(all, "wandb") > 0 && flags.output.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--report-to wandb needs --output-dir DIR: Weft writes an offline run "
                         "below it");
    }
    return std::ranges::count(all, "mlflow") > 0 ? train::MlflowRun::Check() : Status();
}

Status ResolveOutput(TrainFlags& flags) {
    if (!flags.time_limit.empty()) {
        WEFT_ASSIGN(flags.job.save.time_limit_s, ParseTime("--time-limit", flags.time_limit));
    }
    if (!flags.output.empty() && flags.no_output) {
        return MakeError(ErrorCode::kUsage, "--no-output and --output-dir exclude each other");
    }
    WEFT_TRY(CheckReports(flags));
    if (flags.output.empty() && !flags.no_output) {
        return MakeError(ErrorCode::kUsage,
                         "--output-dir DIR is missing: Weft writes the trained model to it. "
                         "--no-output trains without a result (for measurements and trials)");
    }
    return {};
}

// An adapter has only one format.
Status CheckAdapterFlags(const TrainFlags& flags) {
    if (!flags.job.trainer.lora.on()) {
        if (flags.command.Given("--lora")) {
            return MakeError(ErrorCode::kUsage,
                             "--lora {}: expected a rank of 1 or more, such as --lora 16. Leave "
                             "--lora out to train all weights",
                             flags.job.trainer.lora.rank);
        }
        return {};
    }
    const bool type = flags.command.Given("--save-type") && flags.save.type != "F32";
    if (!type && !flags.command.Given("--save-format")) return {};
    return MakeError(ErrorCode::kUsage,
                     "--save-{} {} with --lora: the result is an adapter, which Weft writes as "
                     "DIR/adapter_model.safetensors in F32. Remove the flag; 'weft merge MODEL "
                     "--lora DIR -o OUT --save-{} {}' then writes the merged model",
                     type ? "type" : "format", type ? flags.save.type : flags.save.format,
                     type ? "type" : "format", type ? flags.save.type : flags.save.format);
}

constexpr const char* kGrpoFlags[] = {"--group",
                                      "--max-completion-length",
                                      "--temperature",
                                      "--top-p",
                                      "--top-k",
                                      "--max-num-seqs",
                                      "--reward-cmd",
                                      "--reward-regex",
                                      "--reward-json-schema",
                                      "--reward-model",
                                      "--reward-weights",
                                      "--reward-timeout",
                                      "--reward-workers",
                                      "--epsilon",
                                      "--epsilon-high",
                                      "--num-iterations",
                                      "--loss-type",
                                      "--scale-rewards",
                                      "--importance-sampling-level",
                                      "--mask-truncated-completions"};

// Refuses flags that have no effect without another flag.
Status CheckNeededFlags(const TrainFlags& flags) {
    using enum train::UpdateKind;
    const train::UpdateKind kind = flags.job.trainer.update.kind;
    const auto is = [kind](std::initializer_list<train::UpdateKind> kinds) {
        return std::ranges::count(kinds, kind) > 0;
    };
    const auto reports = [&](const char* to) {
        return std::ranges::count(flags.report_to, to) > 0;
    };
    const bool lora = flags.job.trainer.lora.on(), zero = flags.job.trainer.zero >= 2;
    const bool samples = !flags.job.sample.prompts.empty();
    const struct {
        std::initializer_list<const char*> flags;
        bool has;
        const char* needs;
    } rows[] = {
        {{"--relative-step", "--scale-parameter"}, is({kAdafactor}), "--optimizer adafactor"},
        {{"--muon-adjust-lr"}, is({kMuon}), "--optimizer muon"},
        {{"--momentum"}, is({kSgd, kMuon}), "--optimizer sgd or muon"},
        {{"--betas"}, !is({kSgd, kAdafactor}), "another --optimizer than sgd and adafactor"},
        {{"--eps"}, !is({kSgd, kAdafactor, kLion}), "an --optimizer with Adam's epsilon"},
        {{"--lora-alpha", "--lora-targets", "--lora-dropout"}, lora, "--lora RANK"},
        {{"--rslora"}, lora || !flags.job.trainer.lora.rslora, "--lora RANK"},
        {{"--overlap"}, zero || flags.job.trainer.overlap != "on", "--zero 2 or 3"},
        {{"--sample-every", "--sample-tokens", "--sample-temperature"}, samples, "--sample PROMPT"},
        {{"--run-name"}, reports("wandb") || reports("mlflow"), "--report-to wandb or mlflow"},
        {{"--on-step-timeout"},
         !flags.on_step.empty() || !flags.on_eval.empty(),
         "--on-step or --on-eval"},
        {{"--on-eval"}, flags.job.data.test_split > 0, "--test-split above 0"},
        {{"--max-restarts"}, flags.job.save.every > 0, "--save-every N"},
        {{"--save-type", "--save-format", "--time-limit", "--keep-last", "--overwrite"},
         !flags.no_output,
         "--output-dir DIR"},
    };
    for (const auto& row : rows) {
        const auto given = std::ranges::find_if(
            row.flags, [&](const char* flag) { return flags.command.Given(flag); });
        if (row.has || given == row.flags.end()) continue;
        return MakeError(ErrorCode::kUsage,
                         "{0} needs {1}: it has no effect alone. Add "
                         "{1}, or remove {0}",
                         *given, row.needs);
    }
    return {};
}

// Refuses flags that have no meaning for the loss.
Status CheckPreferenceFlags(const TrainFlags& flags) {
    using train::LossKind;
    struct Fit {
        const char* flag;
        std::vector<LossKind> losses;
    };
    std::vector<Fit> fits = {
        {"--beta",
         {LossKind::kDpo, LossKind::kIpo, LossKind::kOrpo, LossKind::kKto, LossKind::kSimpo,
          LossKind::kGrpo}},
        {"--label-smoothing", {LossKind::kTokens, LossKind::kDpo, LossKind::kSimpo}},
        {"--z-loss", {LossKind::kTokens}},
        {"--neftune-alpha", {LossKind::kTokens}},
        {"--simpo-gamma", {LossKind::kSimpo}},
        {"--center-rewards-coefficient", {LossKind::kReward}},
        {"--num-labels", {LossKind::kClassification}},
        {"--pooling", {LossKind::kContrastive}},
        {"--contrastive-scale", {LossKind::kContrastive}},
        {"--desirable-weight", {LossKind::kKto}},
        {"--undesirable-weight", {LossKind::kKto}},
        {"--ref-model", {LossKind::kDpo, LossKind::kIpo, LossKind::kKto, LossKind::kGrpo}},
    };
    for (const char* flag : kGrpoFlags) fits.push_back({flag, {LossKind::kGrpo}});
    const LossKind loss = flags.job.trainer.preference.loss;
    for (const Fit& fit : fits) {
        if (!flags.command.Given(fit.flag) || std::ranges::count(fit.losses, loss) > 0) continue;
        std::vector<std::string_view> names;
        for (const LossKind each : fit.losses) names.push_back(train::LossName(each));
        return MakeError(ErrorCode::kUsage,
                         "{} with --loss {}: the loss does not use it; it belongs to {}. Remove "
                         "the flag, or use another --loss",
                         fit.flag, train::LossName(loss), fmt::join(names, ", "));
    }
    return {};
}

// The files of 'weft submit' run the same command again and count the starts. From the second start
// on, the job resumes from its own checkpoints.
void ResolveRestart(TrainFlags& flags) {
    const char* const text = std::getenv(train::kRestartVariable);
    const int restart = text == nullptr ? 0 : std::atoi(text);
    train::SaveOptions& save = flags.job.save;
    if (restart <= 0 || flags.output.empty() || save.resume == "auto") return;
    if (!train::GoesOnAfterRestart(flags.output, flags.overwrite)) return;
    Log(LogLevel::kInfo, "restart {} of this job: it resumes as with --resume auto", restart);
    save.resume = "auto";
    flags.begun_anew = std::exchange(flags.overwrite, false);
}

// Without --local, starts as many local ranks as the layout has.
Status ResolveLayout(TrainFlags& flags) {
    const train::TrainerOptions& trainer = flags.job.trainer;
    const int tp = trainer.tp > 0 ? trainer.tp : trainer.ep;
    return ResolveLocal(
        flags.common,
        {{"--tp", tp}, {"--pp", trainer.pp}, {"--cp", trainer.cp}, {"--dp", trainer.dp}});
}

// The flags that a --ds-config adds to or replaces.
Status ResolveValues(TrainFlags& flags) {
    const auto kind = train::FindSchedule(flags.schedule);
    if (!kind) {
        return MakeError(ErrorCode::kUsage, "--schedule {}: expected one of {}", flags.schedule,
                         fmt::join(train::ScheduleNames(), ", "));
    }
    flags.job.schedule.kind = *kind;
    if (*kind != train::ScheduleKind::kWarmupStableDecay) {
        for (const char* name : {"--decay-steps", "--decay-ratio", "--decay-type"}) {
            if (!flags.command.Given(name)) continue;
            return MakeError(ErrorCode::kUsage,
                             "{} belongs to --schedule warmup_stable_decay. Remove it, or use that "
                             "schedule",
                             name);
        }
    }
    flags.job.trainer.dtype = *DTypeOfName(flags.dtype);
    WEFT_TRY(ResolveLossScale(flags));
    WEFT_ASSIGN(flags.job.trainer.split, model::ParseShares(flags.common.split));
    const std::string& devices = flags.job.trainer.device;
    if (flags.common.cluster.elastic && devices.find(',') != std::string::npos) {
        return MakeError(ErrorCode::kUsage,
                         "--elastic with --device {}: the number of ranks changes. Use one device "
                         "for all ranks, or --device auto",
                         devices);
    }
    if (flags.betas.size() != 2) {
        return MakeError(ErrorCode::kUsage, "--betas: expected two numbers, as 0.9,0.999");
    }
    flags.job.trainer.update.beta1 = flags.betas[0];
    flags.job.trainer.update.beta2 = flags.betas[1];
    return ResolveOptimizer(flags);
}

Status ResolveResult(TrainFlags& flags) {
    if (flags.command.Given("--loss-scale") && flags.job.trainer.dtype != DType::kF16) {
        return MakeError(ErrorCode::kUsage,
                         "--loss-scale {} with --dtype {}: only float16 needs a loss scale. Remove "
                         "the flag, or use --dtype f16",
                         flags.loss_scale, Info(flags.job.trainer.dtype).name);
    }
    WEFT_TRY(train::CheckExport(ExportOf(flags)));
    WEFT_TRY(CheckNeededFlags(flags));
    WEFT_TRY(CheckAdapterFlags(flags));
    if (flags.command.Given("--beta")) {
        flags.job.trainer.grpo.beta = flags.job.trainer.preference.beta;
    }
    train::TakeDataWords(flags.job);
    WEFT_TRY(CheckPreferenceFlags(flags));
    flags.job.save.folder = flags.output;
    WEFT_TRY(train::CheckTrainJob(flags.job));
    return ResolveOutput(flags);
}

// The checks of ResolveTrain that need no files.
Status CheckFlags(TrainFlags& flags) {
    WEFT_TRY(ResolveValues(flags));
    return flags.ds_config.empty() ? ResolveResult(flags) : ResolveOutput(flags);
}

Status ResolveTrain(TrainFlags& flags) {
    flags.common.hosts_beyond = true;  // --pp may need cables only between neighbors
    WEFT_TRY(Resolve(flags.common));
    WEFT_TRY(ResolveLayout(flags));
    WEFT_TRY(ResolveValues(flags));
    if (!flags.ds_config.empty()) {
        WEFT_TRY(ResolveDs(flags.command, flags.ds_config, cluster::RanksOf(flags.common.cluster),
                           flags.job, flags.save, flags.telling));
    }
    if (!flags.sample_file.empty()) {
        WEFT_ASSIGN(const std::vector<std::string> prompts, train::ReadPrompts(flags.sample_file));
        std::ranges::copy(prompts, std::back_inserter(flags.job.sample.prompts));
    }
    WEFT_TRY(ResolveResult(flags));
    WEFT_TRY(train::CheckInputStays(flags.job.trainer, ExportOf(flags)));
    ResolveRestart(flags);
    return {};
}

void PrintTrainSummary(const TrainFlags& flags, const Teller& teller,
                       const train::TrainSummary& summary) {
    const auto& peaks = summary.peak_rss_bytes;
    if (flags.common.json) {
        Json json = {{"done", !summary.stopped},
                     {"steps", summary.steps},
                     {"tokens", summary.tokens},
                     {"tokens_per_s", summary.tokens_per_s},
                     {"devices", summary.devices},
                     {"peak_rss_bytes", peaks},
                     {"wire_bytes", summary.wire_bytes},
                     {"waited_s", summary.waited_s},
                     {"restarts", summary.restarts},
                     {"checkpoints", summary.saves.saved},
                     {"checkpoints_failed", summary.saves.failed},
                     {"checkpoint_wait_s", summary.saves.waited_s},
                     {"epoch_s", summary.epoch_s},
                     {"peak_flops_per_s", teller.peak_flops_s()},
                     {"recompute", teller.recompute()},
                     {"grad_dtype", teller.grad_dtype()}};
        const train::LoaderCounts& samples = summary.samples;
        json["samples"] = {{"used", samples.samples},
                           {"truncated", samples.truncated},
                           {"too_long", samples.too_long},
                           {"no_loss", samples.no_loss},
                           {"bad", samples.bad}};
        if (flags.job.trainer.dtype == DType::kF16) json["skipped"] = summary.skipped;
        if (summary.eval_loss) {
            json["eval_loss"] = *summary.eval_loss;
            json["eval_s"] = summary.eval_s;
        }
        if (summary.best_eval_loss) {
            json["best_eval_loss"] = *summary.best_eval_loss;
            json["best_step"] = summary.best_step;
        }
        if (summary.sample_s > 0) json["sample_s"] = summary.sample_s;
        if (summary.stopped) {
            json["checkpoint"] = summary.stopped_at;
            json["exit_status"] = train::kStoppedStatus;
        }
        PostJson(json);
        return;
    }
    const uint64_t most = peaks.empty() ? ResidentBytes() : *std::ranges::max_element(peaks);
    const std::string skipped =
        summary.skipped > 0 ? fmt::format(" ({} skipped)", summary.skipped) : "";
    if (summary.steps == summary.resumed_at && summary.steps > 0) {
        Teller::Say("all {} steps were complete before this run\n", summary.steps);
        return;
    }
    Teller::Say(
        "{} steps{}, {} tokens in {:.1f} s: {:.0f} tok/s; loss {:.4f}; at most {} of "
        "memory a rank\n",
        summary.steps, skipped, summary.tokens, summary.seconds, summary.tokens_per_s,
        summary.last_loss, BytesText(most));
    if (summary.stopped) {
        Teller::Say("stopped on request; {} has the state: --resume auto continues\n",
                    summary.stopped_at);
    }
}

// Returns the exit status of a job that ended without an error.
Result<int> Train(TrainFlags& flags) {
    WEFT_TRY(ResolveTrain(flags));
    Teller teller(flags);
    WEFT_TRY(teller.TakeFolder());
    teller.ShowLoading(flags.common.cluster);
    WEFT_ASSIGN(const train::TrainSummary summary,
                train::RunTraining(flags.common.cluster, flags.job, teller));
    teller.EndLog(!summary.stopped);
    PrintTrainSummary(flags, teller, summary);
    return summary.stopped ? train::kStoppedStatus : 0;
}

int ExitStatusOf(const TrainFlags& flags, const Result<int>& done) {
    if (done.ok()) return *done;
    const int status =
        Fail(fabric::WithPathFaults(done.error(), flags.common.cluster), flags.common.json);
    // A signal arrived before the first update, or during the wait for a lost rank.
    const bool stopped = done.error().code == ErrorCode::kCancelled && !flags.output.empty() &&
                         !train::EndedAtOnce();
    return stopped ? train::kStoppedStatus : status;
}

void AddLoraFlags(const Command& app, train::TrainerOptions& trainer) {
    const Command shown = app.ShowDefaults();
    train::LoraOptions& lora = trainer.lora;
    app.AddOption("--lora", lora.rank,
                  "Train LoRA adapters of this rank and write only them to --output-dir, in the "
                  "format of PEFT; the model's weights stay unchanged, also quantized ones");
    shown.AddOption("--lora-alpha", lora.alpha, "Scale of an adapter: alpha / rank");
    shown.AddOption("--lora-targets", lora.targets,
                    "Matrices with adapters: all, attn, mlp, or module names, as q_proj,v_proj");
    app.AddFlag("--rslora", lora.rslora, "Scale adapters by alpha / sqrt(rank)");
    app.AddOption("--lora-from", lora.from,
                  "Continue to train the adapter in this folder, with its rank, alpha and targets");
    const auto take = [&trainer](double share) {
        trainer.lora_without_dropout = true;
        return share == 0 ? "" : "expected 0: Weft trains adapters without dropout";
    };
    app.AddTaker("--lora-dropout", take, "0: ignore the dropout of the adapter in --lora-from");
    const auto take_all = [&trainer](double share) {
        trainer.without_dropout = true;
        return share == 0 ? "" : "expected 0: Weft trains without dropout";
    };
    app.AddTaker("--dropout", take_all, "0: ignore the dropout in the model's config.json");
}

void AddPreferenceFlags(const Command& app, train::PreferenceOptions& preference) {
    const Command shown = app.ShowDefaults();
    shown.AddOption("--beta", preference.beta,
                    "Preference losses: strength of the reference model, or weight of the margin");
    shown.AddOption("--label-smoothing", preference.label_smoothing,
                    "Share of the target that all tokens get evenly (0 to below 1); dpo and "
                    "simpo: share of pairs whose answers may be swapped (0 to below 0.5)");
    shown.AddOption("--simpo-gamma", preference.simpo_gamma, "simpo: target margin");
    shown.AddOption("--desirable-weight", preference.desirable_weight,
                    "kto: weight of the wanted answers");
    shown.AddOption("--undesirable-weight", preference.undesirable_weight,
                    "kto: weight of the unwanted answers");
    app.AddOption(
        "--ref-model", preference.ref_model,
        "dpo, ipo, kto and grpo: reference model, a file or folder (default: MODEL before "
        "training: with --lora without adapters, with --lora-from with that adapter)");
}

void AddVectorFlags(const Command& app, train::TrainJob& job) {
    const Command shown = app.ShowDefaults();
    shown.AddOption("--center-rewards-coefficient", job.trainer.vectors.center_rewards,
                    "reward: weight of the squared sum of a pair's rewards, which centers them");
    app.AddOption("--num-labels", job.data.labels,
                  "classification: number of classes (default: those of the model's score head)");
    app.AddOption("--pooling", job.data.pooling,
                  "contrastive: how a text's hidden states become its vector: last, mean or cls "
                  "(default: as modules.json or the GGUF file says, else last)");
    shown.AddOption("--contrastive-scale", job.trainer.vectors.scale,
                    "contrastive: factor of the cosines (1 / temperature)");
}

void AddGrpoFlags(const Command& app, train::GrpoOptions& grpo) {
    const Command shown = app.ShowDefaults();
    shown.AddOption("--group,--num-generations", grpo.group,
                    "grpo: completions of each prompt; --micro-batch counts completions");
    app.AddOption("--max-completion-length", grpo.completion_tokens,
                  "grpo: most tokens of a completion (default: half of --seq-len)");
    shown.AddOption("--temperature", grpo.temperature, "grpo: sampling temperature");
    shown.AddOption("--top-p", grpo.top_p, "grpo: sample from the likeliest tokens of this share");
    shown.AddOption("--top-k", grpo.top_k, "grpo: sample from this many tokens (0: all)");
    app.AddOption("--max-num-seqs", grpo.slots,
                  "grpo: most completions that a replica generates at once (default: 64)");
    app.AddEach("--reward-cmd", grpo.commands,
                "grpo: command that reads JSON lines (the record and its completion) and writes a "
                "reward on a line for each; may be repeated");
    app.AddEach("--reward-regex", grpo.regexes,
                "grpo: reward 1 if this regular expression is found; a named group must equal the "
                "record's member of that name; may be repeated");
    app.AddEach("--reward-json-schema", grpo.schemas,
                "grpo: reward 1 if the completion is JSON that follows the schema in this file; "
                "may be repeated");
    app.AddEach("--reward-model", grpo.models,
                "grpo: reward is the score of this model, which --loss reward trained, or a class "
                "...ForSequenceClassification with one label; may be repeated");
    app.AddOption("--reward-weights", grpo.weights,
                  "grpo: weights of the rewards, as 1,0.5, in the order commands, expressions, "
                  "schemas, models (default: 1)")
        .Commas();
    shown.AddOption("--reward-timeout", grpo.reward_timeout_s,
                    "grpo: seconds for a --reward-cmd to judge the completions of an update");
    shown.AddOption("--reward-workers", grpo.reward_workers,
                    "grpo: processes of each --reward-cmd");
    shown.AddOption("--epsilon", grpo.epsilon, "grpo: limit on the change of a probability");
    app.AddOption("--epsilon-high", grpo.epsilon_high,
                  "grpo: limit on the growth of a probability (default: --epsilon)");
    shown.AddOption("--num-iterations", grpo.iterations, "grpo: updates with the same completions");
    shown.AddChoice(
        "--loss-type", grpo.loss_type, {"grpo", "bnpo", "dr_grpo", "dapo"},
        "grpo: mean over completions of their mean token (grpo), over all tokens (dapo, "
        "bnpo), or sum divided by the most tokens (dr_grpo)");
    shown.AddChoice(
        "--scale-rewards", grpo.scale_rewards, {"group", "batch", "none"},
        "grpo: divide advantages by the deviation of the rewards in the group or batch");
    shown.AddChoice("--importance-sampling-level", grpo.importance_level, {"token", "sequence"},
                    "grpo: clip the ratio of each token, or of whole completions (GSPO)");
    app.AddFlag("--mask-truncated-completions", grpo.mask_truncated,
                "grpo: do not learn from completions without an end");
}

void AddRowShareFlag(const Command& app, train::TrainerOptions& trainer) {
    app.AddOption("--sequence-parallel", trainer.sequence_parallel,
                  "With --tp: sequence parallelism: each rank keeps its share of the rows of norms "
                  "and the residual stream, in less memory (on or off)")
        .OnOff()
        .DefaultText("off");
}

void AddExpertFlags(const Command& app, train::TrainerOptions& trainer) {
    app.AddOption("--ep", trainer.ep,
                  "Expert-parallel groups of the tensor ranks; each group holds whole experts "
                  "(default: 1; without --tp, --tp becomes the same number)");
    app.AddNumber("--router-aux-loss", trainer.router_aux_loss, 0.0, 1e6,
                  "Weight of the load-balance loss of experts (default: router_aux_loss_coef of "
                  "config.json if it sets output_router_logits, else 0)");
}

void AddResultFlags(const Command& app, TrainFlags& flags) {
    const Command shown = app.ShowDefaults();
    train::TrainJob& job = flags.job;
    app.AddOption("--output-dir", flags.output,
                  "Folder for the result, checkpoints and logs; one job at a time");
    app.AddFlag("--no-output", flags.no_output,
                "Write no result, checkpoint or log (for measurements and trials)");
    app.AddFlag("--overwrite", flags.overwrite,
                "Start over in a folder with results of an earlier job: Weft deletes its result, "
                "checkpoints and logs before the first update, except files that this job reads");
    shown.AddOption(
        "--save-format", flags.save.format,
        "Format of the result: gguf (DIR/model.gguf) or hf (DIR/model, a Hugging Face folder)");
    shown.AddOption("--save-type", flags.save.type,
                    "Data type of the result: F32, F16, BF16; for gguf also Q8_0, ...");
    shown.AddOption(
        "--save-every", job.save.every,
        "Write a checkpoint to DIR/checkpoints every N updates and at the end (0: none)");
    shown.AddOption("--keep-last", job.save.keep, "Number of checkpoints to keep (0: all)");
    app.AddFlag("--keep-best,--load-best-model-at-end", job.save.best,
                "With --test-split: also write and keep the checkpoint with the lowest eval_loss, "
                "and write the result from it");
    app.AddOption("--resume", job.save.resume,
                  "Resume from a checkpoint: its folder, the --output-dir of another job, or auto: "
                  "the newest checkpoint in DIR, if any");
    app.AddFlag("--new-data", job.data.renewed,
                "With --resume: start at the beginning of other data, or of the same data with "
                "another tokenizer, template or --seq-len");
    app.AddOption("--time-limit TIME", flags.time_limit,
                  "Write a checkpoint and end with status 75 before this time has passed (90s, "
                  "30m, 4h, 4:00:00); --resume auto continues");
    shown.AddOption("--max-restarts", job.save.max_restarts,
                    "With --save-every and several ranks: restart lost ranks from the last "
                    "checkpoint, at most N times");
    app.AddFlag(
        "--elastic", flags.common.cluster.elastic,
        "With --save-every: continue without a rank that does not return within two seconds; a "
        "host of --hosts or --cluster that is back, and workers that connect (--expect-workers), "
        "join at the next update. The batch and the loss curve stay the same");
    app.AddNumber("--restart-timeout-ms", flags.common.cluster.rejoin_ms, 1, 3'600'000,
                  "Milliseconds to wait for a lost rank (default: --timeout-ms; 60000 for local "
                  "ranks and if --elastic needs the rank, 10000 if it does not)");
}

void AddOptimizerFlags(const Command& app, TrainFlags& flags) {
    const Command shown = app.ShowDefaults();
    train::UpdateOptions& update = flags.job.trainer.update;
    shown.AddOption("--optimizer,--optim", flags.optimizer,
                    "Optimizer: adamw, adam (L2 decay in the gradient), sgd, adafactor, adam8bit, "
                    "lion, schedule-free, muon; or its name in transformers");
    app.AddOption("--optimizer-dir", flags.job.trainer.optimizer_folder,
                  "Keep the optimizer's state in a file in this folder of a fast drive, not in "
                  "memory (on CPUs)");
    app.AddOption("--betas", flags.betas,
                  "Beta 1 and beta 2 of Adam, as 0.9,0.999; of Lion (default: 0.9,0.99)")
        .Commas();
    shown.AddOption("--eps", update.eps, "Epsilon of Adam");
    app.AddOption("--weight-decay", update.weight_decay,
                  "Weight decay of matrices (default: 0.01 for adamw, adam8bit and muon, else 0)");
    shown.AddOption("--momentum", update.momentum, "Momentum of SGD; of Muon (default: 0.95)");
    shown.AddChoice("--muon-adjust-lr", flags.muon_adjust, {"match_rms_adamw", "original"},
                    "Muon: rate of a matrix: --lr x 0.2 sqrt(longer side), as large as AdamW's "
                    "updates, or --lr x sqrt(max(1, rows / columns))");
    app.AddFlag("--nesterov", update.nesterov, "Use Nesterov momentum with SGD");
    app.AddFlag("--scale-parameter", update.scale_parameter,
                "Adafactor: multiply the rate by the root mean square of each tensor");
    app.AddFlag("--relative-step", update.relative_step,
                "Adafactor: use the rate min(0.01, 1 / sqrt(step)) instead of --lr");
    app.AddOption(
        "--ema", update.ema,
        "Write the result from a moving average of the weights with this decay, as 0.999");
    app.AddOption("--average-last", update.average_last,
                  "Write the result from the mean of the weights after the last N updates");
}

void AddReportFlags(const Command& app, TrainFlags& flags) {
    app.AddOption("--report-to", flags.report_to,
                  "Where to send the numbers of each update, as tensorboard,wandb: tensorboard and "
                  "wandb (files in --output-dir), mlflow (the server of MLFLOW_TRACKING_URI), or "
                  "none (default: tensorboard)")
        .Commas();
    app.AddOption("--run-name", flags.run_name,
                  "With --report-to wandb or mlflow: name of the run");
    app.AddOption("--on-step", flags.on_step,
                  "Shell command to run after each update, with the line of --json on its standard "
                  "input; its failures do not end the job");
    app.AddOption("--on-eval", flags.on_eval, "The same, after each evaluation");
    app.ShowDefaults().AddNumber("--on-step-timeout", flags.step_timeout_s, 1, 86'400,
                                 "Seconds after which a command of --on-step or --on-eval is "
                                 "killed");
}

void AddSampleFlags(const Command& app, TrainFlags& flags) {
    const Command shown = app.ShowDefaults();
    train::SampleOptions& sample = flags.job.sample;
    app.AddEach(
        "--sample", sample.prompts,
        "Prompt that the model completes during training, beside the losses; may be repeated");
    app.AddOption("--sample-file", flags.sample_file,
                  "File with one such prompt per line (or JSON strings)");
    shown.AddOption(
        "--sample-every", sample.every,
        "Generate the samples every N updates and at the end (0: after each evaluation, or epoch)");
    shown.AddOption("--sample-tokens", sample.tokens, "Maximum tokens of a sample");
    shown.AddOption("--sample-temperature", sample.temperature,
                    "Sampling temperature of samples (0: greedy)");
}

void AddPrecisionFlags(const Command& app, TrainFlags& flags) {
    const Command shown = app.ShowDefaults();
    shown.AddChoice("--dtype", flags.dtype, {"bf16", "f16", "f32"},
                    "Data type of weights and matrix products: bf16, f16 (with loss scaling) or "
                    "f32; the optimizer keeps float32 weights");
    shown.AddChoice("--grad-dtype", flags.job.trainer.grad_dtype, {"auto", "f32", "bf16", "f16"},
                    "Data type in which matrix gradients accumulate over micro-batches and "
                    "replicas: f32, bf16 (f16 with --dtype f16: half the memory and bytes on the "
                    "wire), or auto: f32 if micro-batches x replicas > 8");
    shown.AddOption(
        "--loss-scale", flags.loss_scale,
        "With --dtype f16: factor of the loss. dynamic: start at 65536, halve when gradients "
        "overflow (and skip the step), double after 2000 steps without overflow");
}

void AddTrainLayoutFlags(const Command& app, TrainFlags& flags) {
    const Command shown = app.ShowDefaults();
    train::TrainJob& job = flags.job;
    shown.AddNumber(
        "--zero", job.trainer.zero, 0, 3,
        "ZeRO stage: replicas shard the optimizer state (1), also gradients (2), also weights (3)");
    shown.AddChoice("--overlap", job.trainer.overlap, {"auto", "on", "off"},
                    "Overlap the collectives of ZeRO 2 and 3 with arithmetic: auto (if replicas "
                    "are on several hosts), on or off");
    app.AddOption("--tp", job.trainer.tp, "Tensor-parallel ranks (default: 1)");
    app.AddOption("--pp", job.trainer.pp, "Pipeline stages (default: 1)");
    shown.AddNumber("--virtual-stages", job.trainer.virtual_stages, 1, 1024,
                    "Interleaved pipeline: V model chunks per stage; the bubble shrinks to 1/V, "
                    "the traffic grows V times");
    app.AddOption(
        "--cp", job.trainer.cp,
        "Context-parallel ranks, which divide the rows of long sequences and the heads of "
        "attention (default: 1)");
    app.AddOption("--dp", job.trainer.dp, "Data-parallel replicas (default: ranks / tp / pp / cp)");
    app.AddOption("--tensor-split", flags.common.split,
                  "Shares of tensor ranks or stages, as 3,2,1");
    shown.AddChoice(
        "--recompute", job.trainer.recompute, {"auto", "none", "selective", "full"},
        "Activations to recompute in the backward pass: none, selective (norms and gated units), "
        "full (all but the residual stream), or auto: the first of these that fits into memory");
}

void AddScheduleFlags(const Command& app, TrainFlags& flags) {
    const Command shown = app.ShowDefaults();
    train::Schedule& schedule = flags.job.schedule;
    std::vector<std::string> names;
    for (const std::string_view name : train::ScheduleNames()) names.emplace_back(name);
    shown
        .AddOption("--schedule", flags.schedule,
                   fmt::format("Learning-rate schedule: {}", fmt::join(names, ", ")))
        .Suggest(names);
    shown.AddOption("--schedule-steps", schedule.total_steps,
                    "Length of the schedule in updates (0: the run); afterwards the rate stays at "
                    "its last value");
    shown.AddOption("--warmup-steps", schedule.warmup_steps, "Number of warm-up updates");
    app.AddOption("--warmup-ratio", schedule.warmup_ratio,
                  "Warm-up as a share of the schedule, instead of --warmup-steps");
    app.AddOption("--min-lr", schedule.end,
                  "linear, cosine, warmup_stable_decay: rate at the end (default: 0)");
    app.AddOption("--min-lr-rate", schedule.end_ratio,
                  "Rate at the end as a share of --lr, instead of --min-lr");
    app.AddOption("--decay-steps", schedule.decay_steps,
                  "warmup_stable_decay: number of updates at the end in which the rate decays");
    shown.AddOption("--decay-ratio", schedule.decay_ratio,
                    "warmup_stable_decay: decay as a share of the schedule, without --decay-steps");
    shown.AddOption("--decay-type", schedule.decay_type,
                    "warmup_stable_decay: form of the decay: linear, cosine or 1-sqrt");
}

void AddTrainingFlags(const Command& app, TrainFlags& flags) {
    const Command shown = app.ShowDefaults();
    train::TrainJob& job = flags.job;
    app.AddOption("--ds-config", flags.ds_config,
                  "DeepSpeed configuration file (JSON); flags fill in its \"auto\" values "
                  "(docs/deepspeed.md)");
    shown.AddOption("--eval-every", job.eval_every,
                    "With --test-split: evaluate the test part every N updates and at the end (0: "
                    "after each epoch)");
    shown.AddOption("--early-stopping-patience", job.early_stop.patience,
                    "With --test-split: end training after N evaluations in a row without a lower "
                    "eval_loss (0: do not)");
    shown.AddOption("--early-stopping-threshold", job.early_stop.threshold,
                    "A loss is lower if it is lower by more than this");
    app.AddFlag("--from-scratch", job.trainer.from_scratch,
                "Start from random weights (by --seed); MODEL is a folder with config.json, "
                "tokenizer.json and tokenizer_config.json");
    app.AddFlag("--verify-model", job.trainer.verify_model,
                "Read all bytes of the hosts' copies of the model before the first update, also if "
                "Weft compared them before, and log the result");
    shown.AddOption("--steps", job.steps, "Number of updates (0: set by --epochs)");
    shown.AddOption("--epochs", job.epochs, "Number of passes over the data");
    shown.AddOption("--micro-batch,--batch-size-per-device", job.trainer.micro_batch,
                    "Sequences per micro-batch, on each replica");
    shown.AddOption("--grad-accum", job.trainer.accumulation,
                    "Micro-batches per update, on each replica");
    shown.AddOption("--lr", job.schedule.rate, "Learning rate");
    AddPrecisionFlags(app, flags);
    AddScheduleFlags(app, flags);
    AddOptimizerFlags(app, flags);
    shown.AddOption("--clip", job.trainer.clip, "Maximum gradient norm (0: no clipping)");
    app.AddOption("--z-loss", job.trainer.z_loss,
                  "Add this coefficient times the squared log-sum-exp of the logits to the loss");
    app.AddOption("--neftune-alpha", job.trainer.neftune_alpha,
                  "Add noise to the embedding: NEFTune's alpha");
    AddTrainLayoutFlags(app, flags);
    AddRowShareFlag(app, job.trainer);
    AddExpertFlags(app, job.trainer);
    AddLoraFlags(app, job.trainer);
    AddPreferenceFlags(app, job.trainer.preference);
    AddVectorFlags(app, job);
    AddGrpoFlags(app, job.trainer.grpo);
    AddTrainDevices(app, job.trainer.device);
    shown.AddOption("-t,--threads", job.trainer.threads, "Threads per rank (0: all its cores)");
    app.AddFlag("--reference", job.trainer.reference, "Use reference kernels");
}

}  // namespace

void AddTrain(const Command& app, int& status) {
    auto flags = std::make_shared<TrainFlags>();
    flags->job.schedule.rate = 5e-5;
    const Command train = app.AddCommand("train", "Train a model; inspect its data");
    train.NeedsCommand();
    AddTrainData(train, status);
    AddEstimate(train, status);
    // `weft train MODEL ...` means `weft train run MODEL ...` (main.cc).
    const Command command =
        train.AddCommand("run", "Fine-tune a model, or train it from random weights", kTrainFooter);
    command.LeaveOut("run");
    flags->command = command;
    AddModel(command, flags->job.trainer.model, flags->common.pull);
    AddDataFlags(command, flags->job.data);
    AddResultFlags(command, *flags);
    AddTrainingFlags(command, *flags);
    AddReportFlags(command, *flags);
    AddSampleFlags(command, *flags);
    AddRankFlags(command, flags->common);
    command.AddChoice(
        "--transport", flags->common.cluster.transport, net::TransportNames(),
        "Transport between ranks: auto, shm, tcp, verbs or mpi (auto: shm within a host)");
    AddJson(command, flags->common.json);
    const auto act = [flags, &status] {
        flags->job.save.begin_ns = NowNs();
        flags->job.save.interrupts = !train::InterruptsIgnored();
        train::CatchStops(flags->job.save.interrupts);
        status = RunOnRanks(flags->common, {flags->common.cluster.transport}, [&] {
            const Status pulled = FindModelFirst(*flags);
            return ExitStatusOf(*flags, pulled.ok() ? Train(*flags) : Result<int>(pulled.error()));
        });
    };
    command.Callback(act, [flags] { return CheckFlags(*flags); });
}

}  // namespace weft::cli
