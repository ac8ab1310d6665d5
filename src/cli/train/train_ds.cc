#include "cli/train/train_ds.h"

#include <vector>

#include "cli/terminal/output.h"
#include "model/hyper.h"

namespace weft::cli {
namespace {

train::DsFlags DsFlagsOf(const Command& command, const train::TrainJob& job) {
    const train::TrainerOptions& t = job.trainer;
    train::DsFlags flags;
    const auto take = [&](const char* flag, auto& to, auto value) {
        if (command.Given(flag)) to = value;
    };
    take("--micro-batch", flags.micro_batch, t.micro_batch);
    take("--grad-accum", flags.accumulation, t.accumulation);
    take("--warmup-steps", flags.warmup_steps, job.schedule.warmup_steps);
    take("--zero", flags.stage, t.zero);
    take("--clip", flags.clip, t.clip);
    take("--lr", flags.lr, job.schedule.rate);
    take("--betas", flags.beta1, t.update.beta1);
    take("--betas", flags.beta2, t.update.beta2);
    take("--eps", flags.eps, t.update.eps);
    take("--weight-decay", flags.weight_decay, t.update.weight_decay);
    take("--dtype", flags.precision, train::PrecisionOf(t.dtype));
    take("--loss-scale", flags.loss_scale, t.loss_scale.fixed);
    if (job.steps > 0) flags.total_steps = job.steps;
    if (job.schedule.total_steps > 0) flags.total_steps = job.schedule.total_steps;
    return flags;
}

}  // namespace

Status ResolveDs(const Command& command, const std::string& path, int ranks, train::TrainJob& job,
                 train::TrainExportOptions& save, train::DsTelling& telling) {
    const train::TrainerOptions& t = job.trainer;
    train::DsFlags flags = DsFlagsOf(command, job);
    WEFT_ASSIGN(const train::TrainLayout layout,
                train::MakeTrainLayout(ranks, 0, train::LayoutWordsOf(t)));
    flags.ranks = layout.streams();
    WEFT_ASSIGN(const auto source, train::OpenSource(t));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    flags.hidden_size = hyper.hidden;
    WEFT_ASSIGN(const train::DsConfig config, train::ReadDsConfig(path, flags));
    const train::DsGiven given{.schedule = command.Given("--schedule"),
                               .optimizer = command.Given("--optimizer"),
                               .recompute = command.Given("--recompute"),
                               .save_type = command.Given("--save-type"),
                               .overlap = command.Given("--overlap"),
                               .grad_dtype = command.Given("--grad-dtype")};
    std::vector<std::string> notes;
    WEFT_TRY(train::ApplyDsConfig(config, path, given, job, save, telling, notes));
    for (const std::string& warning : config.warnings) {
        PrintErr("{}: warning: {}\n", path, warning);
    }
    for (const std::string& note : notes) PrintErr("{}: note: {}\n", path, note);
    return {};
}

}  // namespace weft::cli
