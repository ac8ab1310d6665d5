#include "train/run.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "base/log.h"
#include "engine/rank/device_options.h"
#include "engine/start/examine.h"
#include "hw/cpu.h"
#include "train/batch_ahead.h"
#include "train/checkpoint/source.h"
#include "train/data/random.h"
#include "train/data_walk.h"
#include "train/dataset_agreement.h"
#include "train/disk_space.h"
#include "train/elastic.h"
#include "train/evaluate.h"
#include "train/grpo/rollouts.h"
#include "train/lora/lora_source.h"
#include "train/parallel/groups.h"
#include "train/process_work.h"
#include "train/reference.h"
#include "train/resume.h"
#include "train/run_meter.h"
#include "train/settings.h"
#include "train/stop.h"
#include "train/write_result.h"

namespace weft::train {
namespace {

using model_files::hf::Json;

// Lower bound of the write speed of checkpoints, in bytes per second, for --time-limit.
constexpr double kSlowDisk = 200e6;

// A rank that meets a fault of all ranks waits this long for the others.
constexpr int64_t kFailMs = 30'000;

// Errors that the loss of another rank cannot cause.
bool IsOwnFault(ErrorCode code) {
    return code == ErrorCode::kUsage || code == ErrorCode::kUnsupported ||
           code == ErrorCode::kOutOfMemory || code == ErrorCode::kCorrupt;
}

class Run {
  public:
    // listener: null except on rank 0.
    Run(const TrainJob& job, cluster::Cluster& cluster, TrainListener* listener)
        : job_(job),
          cluster_(cluster),
          listener_(listener),
          stops_(cluster, !job.save.folder.empty()),
          search_(job_.save, cluster),
          growth_(cluster),
          reference_(job_, cluster,
                     [this] {
                         return CheckTime("computing the log-probabilities of the reference model",
                                          "");
                     }),
          begin_ns_(job.save.begin_ns > 0 ? job.save.begin_ns : NowNs()) {
        TakeDataWords(job_);
    }

    // Recovers from losses, if the cluster can and as often as the job allows.
    Result<TrainSummary> All() {
        while (true) {
            const Status done = Once();
            if (done.ok()) return summary_;
            // This process is useless without its device: another process replaces it.
            if (!device_.ok()) return engine::WithDevice(cluster_, device_, done.error());
            WEFT_TRY(GoOn(done.error()));
        }
    }

    // Rank 0: adds the checkpoint to resume from to the error about a lost rank.
    Error WithPlace(Error error) const {
        const bool lost = error.code == ErrorCode::kPeerLost || error.code == ErrorCode::kTimeout;
        if (!lost || job_.save.folder.empty()) return error;
        std::string place = Standing();
        if (!place.empty()) {
            place = HowToGoOn(place);
        } else if (job_.save.every == 0 && summary_.steps > summary_.resumed_at) {
            place = "No checkpoint was written before; --save-every N writes one every N updates";
        } else {
            return error;
        }
        const bool ended = error.message.ends_with('.') || error.message.ends_with('?');
        error.message += (ended ? " " : ". ") + place;
        return error;
    }

  private:
    // Runs from the model's file or a checkpoint to the end.
    Status Once() {
        stops_.Enter(StopScope::Phase::kLoading);
        rollout_left_ = 0;
        summary_.stopped = bad_record_ = no_rewards_ = trial_failed_ = false;
        stop_fault_.clear();
        save_fault_.clear();
        // Errors in options and data are reported before a large model is loaded.
        const TrainerOptions& t = job_.trainer;
        WEFT_ASSIGN(const TrainLayout layout,
                    MakeTrainLayout(cluster_.size(), cluster_.rank(), LayoutWordsOf(t)));
        WEFT_TRY(CheckTrainer(t));
        cluster_.SetProgress(ProcessWork);  // also for the data, until the trainer sets its own
        WEFT_ASSIGN(auto source, OpenSource(t));
        WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
        WEFT_TRY(SetSequence(hyper, job_.data.sequence));
        TakeJobWords();
        WEFT_TRY(CheckResult(*source));
        WEFT_ASSIGN(OpenedData data, OpenData(*source, job_.data, hyper.vocab));
        if (t.vectors.joins()) job_.trainer.vectors.texts = data.set->texts();
        WEFT_ASSIGN(content_, IdentityOf(*source, job_.data, data));
        WEFT_TRY(AgreeOnData(cluster_, content_, job_.trainer.lora.from));
        if (cluster_.rank() == 0 && data.set->Chooses() && !std::exchange(logged_data_, true)) {
            Log(LogLevel::kInfo, "data: {}", data.set->Summary());
        }
        WEFT_TRY(MakeSampler(hyper, data));
        WEFT_TRY(MakeRollouts(data));
        WEFT_ASSIGN(std::optional<Checkpoint> checkpoint, AgreeOnCheckpoint());
        if (checkpoint) {
            const Json& state = checkpoint->manifest().state;
            WEFT_ASSIGN(job_.data.day, TakeDay(state, checkpoint->folder(), *data.set));
            WEFT_TRY(TakeModelSeed(state, source));
        }
        best_.emplace(job_.early_stop);
        if (checkpoint && checkpoint->manifest().state.contains("best")) {
            WEFT_TRY(best_->Restore(checkpoint->manifest().state.at("best")));
        }
        WEFT_TRY(reference_.Open(*source, content_, data));
        DataWalk walk(job_, cluster_, layout, data, [this](std::string_view what) {
            return CheckTime(what, job_.steps == 0 ? ", or --steps N instead of --epochs" : "");
        });
        WEFT_TRY(CheckTestPart(walk, data));
        WEFT_ASSIGN(Loader loader, OpenLoader(job_, layout, data));
        int64_t done = 0;
        if (checkpoint) {
            WEFT_ASSIGN(data_begin_,
                        SeekTo(*checkpoint, job_, content_, cluster_.rank() == 0, loader));
            done = checkpoint->manifest().step;
        }
        WEFT_ASSIGN(const int64_t steps, walk.CountUpdates(done, loader));
        if (walk.counts()) NoteSamples(*walk.counts());
        job_.schedule = ForRun(job_.schedule, steps);
        WEFT_TRY(CheckSchedule(job_.schedule));
        batch_ = GlobalBatch(job_, layout);
        WarnOfLoneRecord();
        if (checkpoint) WEFT_TRY(CheckResumed(*checkpoint, steps, loader.cursor()));
        WEFT_TRY(reference_.ComputeApart(!checkpoint, data));
        WEFT_ASSIGN(auto trainer, MakeTrainer(std::move(source), checkpoint, steps));
        // (A removed file keeps its disk space while it is open.)
        if (checkpoint && HasWeights(trainer->state(), *checkpoint)) checkpoint->Close();
        Status ended = reference_.ComputeOrShare(*trainer, data);
        if (ended.ok()) ended = WithTrainer(*trainer, loader, data, done + 1, steps);
        device_ = trainer->device_status();
        // Report the failure while the Trainer exists: its pending sends may wait for ranks that
        // never answer, and the verdict ends these waits. (An error that another rank's loss may
        // have caused, as a link reports it, is left to NextEpoch.)
        if (!ended.ok() && (!cluster_.recovers() || EndsTheJob(ended.error()))) {
            return cluster_.ReportFailure(ended.error());
        }
        return ended;
    }

    void TakeJobWords() {
        TakeDataWords(job_);
        if (model_seed_) job_.trainer.seed = *model_seed_;
    }

    // Random weights come from the seed at the start of training; another --seed is for new data.
    // (Checkpoints of earlier versions lack the seed: such a job resumes with the same --seed.)
    Status TakeModelSeed(const Json& state, std::unique_ptr<model_files::ModelSource>& source) {
        TrainerOptions& t = job_.trainer;
        const auto seed = state.find("model_seed");
        const bool random = t.from_scratch || t.vectors.on();
        if (!random || seed == state.end() || !seed->is_number_unsigned() || *seed == t.seed) {
            return {};
        }
        t.seed = model_seed_.emplace(seed->get<uint64_t>());
        WEFT_ASSIGN(source, OpenSource(t));
        return CheckResult(*source);
    }

    // Checks that the job continues from the checkpoint. Forgets the checkpoint's lowest loss if it
    // is another loss or one over other data, or if --keep-best would end with that step, whose
    // checkpoint is not in this job's folder.
    Status CheckResumed(const Checkpoint& checkpoint, int64_t steps, const Cursor& at) {
        WEFT_TRY(CheckGoesOn(checkpoint, job_, batch_, steps, at, cluster_.rank() == 0));
        if (best_->step() == 0) return {};
        const int64_t done = checkpoint.manifest().step;
        std::string why;
        if (data_begin_ == done) {
            why = "the data are new";
        } else if (!IsSameLoss(checkpoint.manifest().state, job_)) {
            why = "--loss is another one";
        } else if (job_.save.best && done < steps) {
            const std::string folder = StepFolder(job_.save.folder, best_->step());
            const bool lost = cluster_.rank() == 0 && !IsCheckpoint(folder);
            WEFT_ASSIGN(const std::vector<std::string> all,
                        cluster_.AllGather("best checkpoint", lost ? folder + " is missing" : "",
                                           Deadline::In(kAgreeMs)));
            why = all.front();
        }
        if (why.empty()) return {};
        if (cluster_.rank() == 0) {
            Log(LogLevel::kInfo,
                "{}: the lowest loss over the test part so far, {:.6g} of step {}, does not count",
                why, best_->loss(), best_->step());
        }
        best_.emplace(job_.early_stop);
        return {};
    }

    // Rank 0: checks that the result's format supports this model.
    Status CheckResult(const model_files::ModelSource& source) {
        const Status fits = listener_ == nullptr ? Status() : listener_->CheckResult(source);
        if (fits.ok()) return {};
        failed_ = true;
        return cluster_.ReportFailure(fits.error());
    }

    // A newcomer's fault does not end the job: the others continue without it.
    bool EndsTheJob(const Error& error) const {
        const net::PeerMonitor* monitor = cluster_.monitor();
        const bool judged = monitor != nullptr && monitor->Failed();
        return (IsOwnFault(error.code) || no_rewards_) && !judged && !with_joiners_;
    }

    Status WithTrainer(Trainer& trainer, Loader& loader, const OpenedData& data, int64_t first,
                       int64_t steps) {
        WEFT_ASSIGN(const double peak, SumOfPeaks(trainer));
        WEFT_TRY(PlanSpace(trainer, steps));
        if (listener_ != nullptr) WEFT_TRY(listener_->OnStart(trainer, first, steps, peak));
        WEFT_TRY(NoteAllReady(trainer));
        stops_.Enter(StopScope::Phase::kLearning);
        WEFT_TRY(Steps(trainer, loader, data, first, steps));
        stops_.Enter(StopScope::Phase::kWriting);
        WEFT_TRY(summary_.stopped ? EndStopped(trainer) : WriteAll(trainer, loader));
        const Status gathered = meter_.Gather(cluster_, summary_);
        // The result is written, so errors in the ranks' final reports are only warnings.
        if (gathered.ok() || listener_ == nullptr) return gathered;
        Log(LogLevel::kWarning, "the results are complete, but not all ranks ended: {}",
            gathered.error().message);
        return {};
    }

    // From now on, a new rank is a rank like the others.
    Status NoteAllReady(const Trainer& trainer) {
        if (job_.elastic && !place_.all_shared) {
            return MakeError(ErrorCode::kUsage,
                             "--elastic: not all hosts see {} of rank 0's host, but after a loss "
                             "the remaining ranks read the checkpoints of all ranks there. Mount "
                             "one file system under that path on every host",
                             job_.save.folder);
        }
        with_joiners_ = false;
        if (cluster_.rank() != 0) return {};
        cluster_.NoteAllReady();
        if (!job_.elastic) return {};
        WEFT_ASSIGN(const engine::Terms model,
                    engine::TermsOf(trainer.source(), trainer.identity()));
        growth_.SendTerms(job_, model, content_);
        return {};
    }

    // Writes the result. First it writes a checkpoint of the last update if the disk has room for
    // both, because the result may fail, or a rank may be lost meanwhile. Without --save-every,
    // that checkpoint is removed once the result is complete. Without space for both, a failed
    // result is followed by a checkpoint in its space. If that fails too, the result is retried
    // until it is written or a signal arrives.
    Status WriteAll(Trainer& trainer, const Loader& loader) {
        const std::string checkpoint = StepFolder(job_.save.folder, summary_.steps);
        bool there = resume_from_ == checkpoint;
        const bool first =
            !there && !job_.save.folder.empty() && summary_.steps > summary_.resumed_at;
        if (first) {
            WEFT_ASSIGN(there, SaveAll(trainer, loader, SaveSpace::kSpare));
        }
        WEFT_ASSIGN(const bool is_best, LoadBest(trainer));
        if (trainer.progress().averaged > 0) trainer.ExportAverage();
        const Status written = Export(trainer, false);
        if (!written.ok() && !failed_) return written;  // lost a rank
        WEFT_ASSIGN(
            const std::vector<std::string> said,
            cluster_.AllGather("result", written.ok() ? "" : "failed", Deadline::In(kAgreeMs)));
        if (said.front().empty()) {
            const bool here = cluster_.rank() == 0 || !place_.shared;
            if (first && there && job_.save.every == 0 && here) RemoveCheckpoint(checkpoint);
            return {};
        }
        // (Weights of the best step do not belong into a checkpoint of the last one.)
        if (!there && !is_best) {
            WEFT_ASSIGN(there, SaveAll(trainer, loader, SaveSpace::kWithoutResult));
        }
        if (!there) return Export(trainer, true);
        if (written.ok()) return {};  // rank 0 has reported the error
        return MakeError(written.error().code,
                         "{}. Checkpoint {} has all updates: once the result can be written, the "
                         "same command with --resume auto writes it",
                         written.error().message, checkpoint);
    }

    // --keep-best: the result has the weights of the evaluation with the lowest loss.
    // Returns whether it has other weights than those of the last update.
    Result<bool> LoadBest(Trainer& trainer) {
        if (!job_.save.best || best_->step() == 0 || best_->step() == summary_.steps) return false;
        const std::string folder = StepFolder(job_.save.folder, best_->step());
        const WorkScope reads(cluster_, trainer.executable());
        std::optional<Checkpoint> checkpoint;
        WEFT_ASSIGN(const Verdict verdict, OpenWhole(folder, cluster_, checkpoint));
        if (!checkpoint) {
            if (cluster_.rank() == 0) {
                Log(LogLevel::kWarning, "{}: the result has the weights of the last update, {}",
                    verdict.fault, summary_.steps);
            }
            return false;
        }
        const model_files::ModelSource& base = base_ != nullptr ? *base_ : trainer.source();
        WEFT_ASSIGN(const CheckpointSource trained, CheckpointSource::Make(base, *checkpoint));
        const PinnedThread pinned(cluster_.cores());  // for threads that read
        WEFT_TRY(trainer.LoadWeights(trained));
        // (An average that the optimizer has of the weights needs its state, too.)
        if (trainer.rule().has_view()) {
            WEFT_TRY(
                ReadKept(*checkpoint, trainer.state(), trainer.rule(), job_.trainer.update, false));
        }
        if (cluster_.rank() == 0) {
            Log(LogLevel::kInfo,
                "the result has the weights of step {}, whose loss over the test part, {:.6g}, is "
                "the lowest",
                best_->step(), best_->loss());
        }
        return true;
    }

    // Saves a checkpoint of the last update. Returns whether it succeeded, the same on all ranks.
    Result<bool> SaveAll(const Trainer& trainer, const Loader& loader, SaveSpace room) {
        const std::unique_ptr<Saver> saver = MakeSaver(trainer);
        WEFT_TRY(saver->Begin(summary_.steps, StateOf(trainer, loader), room));
        WEFT_TRY(Finish(*saver));
        const bool saved = saver->fault().empty();
        if (room != SaveSpace::kSpare) Count(*saver);
        if (!saved && listener_ != nullptr) {
            Log(LogLevel::kWarning, "{}{}", saver->fault(),
                room == SaveSpace::kSpare ? ". The result is written without a checkpoint before it"
                                          : "");
        }
        return saved;
    }

    // alone: as in WriteResult.
    Status Export(Trainer& trainer, bool alone) {
        if (listener_ == nullptr) return trainer.ServeExport();
        const auto trained = trainer.Export();
        const WritingScope writes(cluster_);
        const Status written = listener_->OnTrained(*trained, alone);
        // (After the loss of a rank, the last checkpoint has the weights.)
        failed_ = !written.ok() && written.error().code != ErrorCode::kPeerLost &&
                  written.error().code != ErrorCode::kTimeout;
        return written;
    }

    // The job was stopped, or a checkpoint could not be written. If the checkpoint of the stop
    // could not be written either and there is no earlier one, exports the current model.
    Status EndStopped(Trainer& trainer) {
        // Only rank 0 has the list of checkpoints, and any rank may report the end.
        const std::string from =
            cluster_.rank() == 0 && !stop_fault_.empty() ? Standing() : resume_from_;
        std::string mine = from.empty() ? "export" : HowToGoOn(from);
        if (!save_fault_.empty() && !stop_fault_.empty()) {
            save_fault_ += ". The second try failed, too: " + stop_fault_;
        }
        const Json word = {{"rest", mine}, {"fault", save_fault_}};
        WEFT_ASSIGN(
            const std::vector<std::string> said,
            cluster_.AllGather("stopped", word.dump(-1, ' ', true, Json::error_handler_t::replace),
                               Deadline::In(kAgreeMs)));
        WEFT_ASSIGN(const Json told, model_files::hf::ParseJson(said.front(), "rank 0's stop"));
        std::string rest = told.value("rest", "");
        const bool rescues = rest == "export";
        Status written;
        if (rescues) written = Export(trainer, false);
        if (stop_fault_.empty() && save_fault_.empty()) return written;
        failed_ = true;
        if (rescues && written.ok()) {
            rest = "There is no earlier checkpoint; Weft wrote the current model to " +
                   job_.save.folder;
        } else if (rescues) {
            rest = "There is no earlier checkpoint, and the model could not be written: " +
                   written.error().message;
        }
        if (!save_fault_.empty()) {
            return MakeError(ErrorCode::kIo,
                             "training stopped after step {}, because a checkpoint could not be "
                             "written: {}. {}",
                             summary_.steps, told.value("fault", save_fault_), rest);
        }
        return MakeError(
            ErrorCode::kIo,
            "asked to stop, but the checkpoint of step {} could not be written: {}. {}",
            summary_.steps, stop_fault_, rest);
    }

    // The folder of the checkpoint that `--resume auto` would use; empty: no checkpoint is on disk.
    // Reads the folder at each call, because a user may remove checkpoints.
    std::string Standing() const {
        if (resume_from_.empty() || IsCheckpoint(resume_from_)) return resume_from_;
        const std::vector<std::string> all = ListCheckpoints(job_.save.folder, nullptr);
        return all.empty() ? "" : all.front();
    }

    // (A checkpoint that --resume names may belong to another job.)
    std::string HowToGoOn(const std::string& checkpoint) const {
        const bool own = checkpoint.starts_with(job_.save.folder + "/");
        return fmt::format("{} goes on from {}", own ? "--resume auto" : "the same command",
                           checkpoint);
    }

    // Checks disk space before the first update. Afterwards all ranks have the size and the
    // location of a checkpoint.
    Status PlanSpace(const Trainer& trainer, int64_t steps) {
        const SaveOptions& save = job_.save;
        if (save.folder.empty()) return {};
        WEFT_ASSIGN(place_, AgreeOnPlace(save, cluster_, trainer.state(), trainer.rule(),
                                         trainer.source()));
        const int64_t all = save.every > 0 ? (steps + save.every - 1) / save.every : 0;
        room_.checkpoints = save.keep > 0 ? std::min(all, save.keep + 1) : all;
        if (save.best) ++room_.checkpoints;
        room_.folder = save.folder;
        if (listener_ == nullptr) return CheckOwnMemory();
        WEFT_ASSIGN(room_.result_bytes, listener_->ResultBytes(trainer));
        room_.checkpoint_bytes = place_.here_bytes;
        room_.steps = steps;
        room_.limited = save.time_limit_s > 0;
        return CheckSpaceFor(room_);
    }

    // Checks the disk of a rank that does not share rank 0's: space for its own checkpoint files.
    Status CheckOwnMemory() {
        if (place_.shared || room_.checkpoints == 0) return {};
        room_.checkpoint_bytes = place_.own_bytes;
        std::error_code ignored;
        std::filesystem::create_directories(room_.folder, ignored);
        const Status fits = CheckSpaceFor(room_);
        if (fits.ok()) return {};
        return MakeError(fits.error().code, "rank {}: {}", cluster_.rank(), fits.error().message);
    }

    void WarnOfLoneRecord() const {
        if (batch_ == 1 && job_.data.loss == "contrastive" && cluster_.rank() == 0) {
            Log(LogLevel::kWarning,
                "--loss contrastive with one record an update: texts of other records, which are "
                "its negatives, are missing. Use --micro-batch 16 or more");
        }
    }

    // 0: a rank's peak is unknown. Ranks of one host measure at the same time, because they also
    // compute at the same time.
    Result<double> SumOfPeaks(const Trainer& trainer) {
        std::vector<double> peaks;
        WEFT_TRY(AllGather(cluster_, "peak", trainer.MeasurePeak(), peaks));
        if (std::ranges::min(peaks) <= 0) return 0.0;
        return std::accumulate(peaks.begin(), peaks.end(), 0.0);
    }

    Status MakeSampler(const model::Hyper& hyper, const OpenedData& data) {
        if (job_.sample.prompts.empty()) return {};
        if (data.tokenizer == nullptr) {
            return MakeError(ErrorCode::kUsage,
                             "--sample with --data {}: there is no tokenizer to read prompts with",
                             DataName(job_.data));
        }
        WEFT_ASSIGN(sampler_, TextSampler::Make(job_.sample, *data.tokenizer, hyper.vocab,
                                                job_.trainer.sequence, job_.data.seed));
        return {};
    }

    // Rank 0 reports errors in the rewards.
    Status MakeRollouts(const OpenedData& data) {
        if (!job_.trainer.grpo.on) return {};
        auto made = Rollouts::Make(job_.trainer.grpo, data, cluster_);
        if (!made.ok()) {
            failed_ = true;
            return cluster_.ReportFailure(made.error());
        }
        rollouts_.emplace(*std::move(made));
        return {};
    }

    // The same for the same update of any job with this seed.
    uint64_t RolloutSeed(int64_t step) const {
        return Mix(job_.data.seed ^ Mix(static_cast<uint64_t>(step)));
    }

    // Once: reports faults of the test part before training begins.
    Status CheckTestPart(DataWalk& walk, const OpenedData& data) {
        evaluates_ = job_.data.test_split > 0 && data.set->size(Part::kTest) > 0;
        if (job_.data.test_split > 0 && !evaluates_) WEFT_TRY(WarnOfEmptyTestPart(data));
        if (!evaluates_ || test_part_read_) return {};
        WEFT_ASSIGN(const LoaderCounts counts, walk.CheckTestPart());
        test_part_read_ = true;
        WarnOfLeftOut(counts, Part::kTest);
        return {};
    }

    // An error if evaluations were requested explicitly, otherwise a warning.
    Status WarnOfEmptyTestPart(const OpenedData& data) {
        const std::string empty = fmt::format(
            "{}: the test part of --test-split {} has no sample: none of {} falls into it",
            data.set->Name(), job_.data.test_split, data.set->size(Part::kTrain));
        if (job_.eval_every > 0) {
            return MakeError(ErrorCode::kUsage,
                             "{}, and --eval-every {} has nothing to evaluate on. Use a larger "
                             "--test-split, or leave both out",
                             empty, job_.eval_every);
        }
        if (cluster_.rank() == 0 && !std::exchange(test_part_read_, true)) {
            Log(LogLevel::kWarning,
                "{}: nothing is evaluated. A larger --test-split, or another --seed, gives it some",
                empty);
        }
        return {};
    }

    void WarnOfLeftOut(const LoaderCounts& counts, Part part) const {
        const std::string text = cluster_.rank() == 0 ? LeftOutText(counts, job_, part) : "";
        if (!text.empty()) Log(LogLevel::kWarning, "{}", text);
    }

    // Once: logs samples that an epoch skips or truncates.
    void NoteSamples(const LoaderCounts& counts) {
        if (std::exchange(samples_noted_, true)) return;
        summary_.samples = counts;
        WarnOfLeftOut(counts, Part::kTrain);
    }

    // After `error`: starts the next epoch of the job if the error was a loss; otherwise returns
    // the error that ends the job.
    Status GoOn(const Error& error) {
        if (!cluster_.recovers() || failed_) return error;
        stops_.Enter(StopScope::Phase::kLoading);
        const bool root = cluster_.rank() == 0;
        // After a stop request, nobody waits for a lost rank.
        const bool ends = StopRequested() || (root && (summary_.stopped || IsTimeUp()));
        if (ends) cluster_.RequestStop();
        // (Rank 0 counts losses, but not epochs that begin or fail with newcomers; the other ranks
        // follow it.)
        const bool counts = !std::exchange(grows_, false) && !with_joiners_;
        if (root && counts && !ends && summary_.restarts >= job_.save.max_restarts) return error;
        const std::string job = cluster_.job();
        const std::string standing = root ? Standing() : "";
        const std::string from = standing.empty() ? "the start: there is no checkpoint" : standing;
        const int ranks = cluster_.size();
        const auto next = cluster_.NextEpoch(error, [&](const auto& kept) -> Result<std::string> {
            if (!job_.elastic) return job;
            WEFT_ASSIGN(const TrainJob resized, Resize(job_, static_cast<int>(kept.size())));
            return TrainJobToJson(resized);
        });
        if (!next.ok()) {
            if (root && next.error().code == ErrorCode::kCancelled) {
                Log(LogLevel::kWarning,
                    "{}. Asked to stop meanwhile: --resume auto goes on from {}", error.message,
                    from);
            }
            return next.error();
        }
        if (counts) ++summary_.restarts;
        with_joiners_ = cluster_.size() > ranks || !next->joined.empty();
        if (job_.elastic) {
            WEFT_ASSIGN(const TrainJob resized, TrainJobOf(cluster_));
            job_.trainer.accumulation = resized.trainer.accumulation;
            if (!root) SetLogRank(cluster_.rank());
        }
        if (root) LogEpoch(*next, ranks, cluster_.size(), from);
        return {};
    }

    Result<std::optional<Checkpoint>> AgreeOnCheckpoint() {
        WEFT_ASSIGN(std::optional<Checkpoint> checkpoint, search_.Find(resume_from_));
        if (checkpoint) resume_from_ = checkpoint->folder();
        return checkpoint;
    }

    // The state after the last complete update.
    Json StateOf(const Trainer& trainer, const Loader& loader) const {
        const TrainLayout& layout = trainer.layout();
        Json state = {
            {"cursor", {cursor_.epoch, cursor_.index, cursor_.given}},
            {"data", loader.Fingerprint()},
            {"content", JsonOf(content_)},
            {"data_begin", data_begin_},
            {"model_seed", job_.trainer.seed},
            {"day", job_.data.day},
            {"optimizer", UpdateName(trainer.options().update.kind)},
            {"layout",
             fmt::format("tp {} pp {} dp {}{}", layout.tp(), layout.pp(), layout.streams(),
                         layout.cp > 1 ? fmt::format(" cp {}", layout.cp) : "")},
            {"settings", SettingsOf(job_, batch_)}};
        if (best_->step() > 0) state["best"] = best_->ToJson();
        NoteProgress(trainer.progress(), job_.trainer.update, state);
        return state;
    }

    Result<std::unique_ptr<Trainer>> MakeTrainer(std::unique_ptr<model_files::ModelSource> source,
                                                 const std::optional<Checkpoint>& checkpoint,
                                                 int64_t steps) {
        TakeJobWords();  // the day
        if (!checkpoint) {
            return Trainer::Make(job_.trainer, cluster_, std::move(source),
                                 reference_.TakeGroups());
        }
        WEFT_ASSIGN(base_, WithAdapters(std::move(source), job_.trainer.lora));
        // (The other ranks compare their files with rank 0's.)
        if (cluster_.rank() == 0) WEFT_TRY(CheckModel(*base_, *checkpoint));
        WEFT_ASSIGN(CheckpointSource trained, CheckpointSource::Make(*base_, *checkpoint));
        TrainerOptions options = job_.trainer;
        options.resumes = true;
        WEFT_ASSIGN(
            auto trainer,
            Trainer::Make(options, cluster_, std::make_unique<CheckpointSource>(std::move(trained)),
                          reference_.TakeGroups()));
        const PinnedThread pinned(cluster_.cores());  // for threads that read
        const WorkScope reads(cluster_, trainer->executable());
        const UpdateOptions& update = job_.trainer.update;
        WEFT_ASSIGN(TrainerProgress progress, ProgressOf(*checkpoint, update));
        const int64_t step = checkpoint->manifest().step;
        WEFT_TRY(CheckAverage(progress, step, steps));
        if (!IsAveraged(step, steps)) progress.averaged = 0;
        WEFT_TRY(ReadKept(*checkpoint, trainer->state(), trainer->rule(), update,
                          progress.averaged > 0));
        WEFT_TRY(trainer->SetProgress(progress));
        return trainer;
    }

    Status Steps(Trainer& trainer, Loader& loader, const OpenedData& data, int64_t next,
                 int64_t steps) {
        summary_.steps = summary_.resumed_at = next - 1;
        model_ = trainer.identity().model;
        const std::unique_ptr<Saver> made = MakeSaver(trainer);
        Saver& saver = *made;
        trainer.SetBeforeUpdate([&] { return Finish(saver); });
        trainer.SetStopRequest([this] { return StopRequested() || IsTimeUp(); });
        if (job_.elastic && cluster_.rank() == 0) {
            trainer.SetGrowRequest([this] { return growth_.Ready(job_) > 0; });
        }
        Status done = Updates(trainer, loader, data, saver, next, steps);
        trainer.SetBeforeUpdate({});
        trainer.SetStopRequest({});
        trainer.SetGrowRequest({});
        if (!done.ok()) done = WithUpdatesSaved(trainer, loader, saver, done.error());
        Count(saver);
        if (!done.ok() || !summary_.stopped || cluster_.rank() != 0) return done;
        summary_.stopped_at = StepFolder(job_.save.folder, summary_.steps);
        if (saver.last() == summary_.stopped_at) return {};
        stop_fault_ = saver.fault().empty() ? "no save was begun" : saver.fault();
        return {};
    }

    std::unique_ptr<Saver> MakeSaver(const Trainer& trainer) const {
        auto saver = std::make_unique<Saver>(job_.save, cluster_, trainer.state(), trainer.rule(),
                                             trainer.source(), model_);
        saver->SetSpace(place_, room_);
        saver->SetBad(search_.bad());
        if (job_.save.best && best_->step() > 0) {
            saver->SetBest(StepFolder(job_.save.folder, best_->step()));
        }
        return saver;
    }

    void Count(const Saver& saver) {
        summary_.saves.saved += saver.counts().saved;
        summary_.saves.failed += saver.counts().failed;
        summary_.saves.waited_s += saver.counts().waited_s;
    }

    // On rank 0: whether the rest of --time-limit only suffices for the updates before the next
    // possible stop and a checkpoint.
    bool IsTimeUp() const {
        const double limit = job_.save.time_limit_s;
        if (!(limit > 0) || cluster_.rank() != 0) return false;
        const double saving = static_cast<double>(place_.here_bytes) / kSlowDisk;
        const double margin = std::min(2 * longest_s_ + saving, limit / 2);
        return SecondsSince(begin_ns_) + margin >= limit;
    }

    // Whether time remains for updates. A job that is queued again after kCancelled would end at
    // the same point each time, unless this run has saved updates (before the loss of a rank).
    Status CheckTime(std::string_view what, std::string_view other_way) const {
        if (!IsTimeUp()) return {};
        const bool saved = summary_.saves.saved > 0;
        return MakeError(saved ? ErrorCode::kCancelled : ErrorCode::kUnsupported,
                         "the time limit of {:g} s is over before the first update: {}. Use a "
                         "longer --time-limit{}",
                         job_.save.time_limit_s, what, other_way);
    }

    Status Finish(Saver& saver) {
        WEFT_TRY(saver.Finish());
        if (!saver.last().empty()) resume_from_ = saver.last();
        return {};
    }

    Status Updates(Trainer& trainer, Loader& loader, const OpenedData& data, Saver& saver,
                   int64_t next, int64_t steps) {
        meter_.Begin(trainer, saver);
        BatchAhead batches(loader, ReadingCores(cluster_, job_.trainer.threads));
        cursor_ = batches.cursor();
        int64_t begin_ns = 0;
        for (int64_t step = next; step <= steps && !summary_.stopped && !best_->ends(); ++step) {
            if (rollout_left_ == 0) begin_ns = NowNs();
            if (!saver.fault().empty()) {
                WEFT_TRY(StopUnsaved(trainer, loader, saver, step - 1));
                break;
            }
            meter_.BeginUpdate();
            WEFT_ASSIGN(const Batch* const batch, NextBatch(trainer, batches, data, step, steps));
            if (batch == nullptr) break;
            const bool ends_epoch = batches.cursor().epoch > cursor_.epoch;
            if (batches.first_epoch()) NoteSamples(*batches.first_epoch());
            const double rate = LearningRate(job_.schedule, trainer.updates());
            WEFT_ASSIGN(StepReport report, trainer.Step(*batch, rate));
            if (!report.skipped && IsAveraged(step, steps)) WEFT_TRY(trainer.Average());
            // (A checkpoint has no completions.)
            if (rollout_left_ > 0) report.stop_requests = 0;
            StepLine line{
                step, steps, report.loss,     report.grad_norm,  rate,          report.positions,
                0,    {},    report.aux_loss, report.loss_scale, report.skipped};
            line.values = report.values;
            if (rollouts_) NoteRollout(line);
            meter_.EndUpdate(line);
            summary_.steps = step;
            cursor_ = batches.cursor();
            summary_.last_loss = line.loss;
            summary_.skipped = trainer.progress().skipped;
            if (ends_epoch) meter_.EndEpoch(step, batches.cursor().epoch);
            if (report.stop_requests > 0) WEFT_TRY(Stop(step, report.stop_requests));
            bool best = false;
            if (!summary_.stopped && IsEvaluated(step, steps, ends_epoch)) {
                WEFT_TRY(Evaluate(trainer, data, line));
                best = line.eval_loss && best_->Note(*line.eval_loss, step) && job_.save.best;
            }
            if (best) saver.SetBest(StepFolder(job_.save.folder, step));
            if (!summary_.stopped && IsSampled(step, steps, ends_epoch)) {
                WEFT_TRY(Sample(trainer, line));
            }
            if (listener_ != nullptr) listener_->OnStep(line);
            const bool grows = report.grows && !summary_.stopped && step < steps;
            if (summary_.stopped || grows || best || IsSaved(step, steps)) {
                const SaveSpace room =
                    summary_.stopped ? SaveSpace::kWithoutResult : SaveSpace::kBesideResult;
                WEFT_TRY(saver.Begin(step, StateOf(trainer, loader), room));
            }
            if (grows) WEFT_TRY(Grow(saver, step));
            longest_s_ = std::max(longest_s_, SecondsSince(begin_ns));
        }
        if (best_->ends() && cluster_.rank() == 0) {
            Log(LogLevel::kInfo,
                "training ends after step {}: {} evaluations in a row did not lower the loss "
                "enough; the lowest is {:.6g}, that of step {}",
                summary_.steps, best_->since(), best_->loss(), best_->step());
        }
        if (best_->step() > 0) {
            summary_.best_eval_loss = best_->loss();
            summary_.best_step = best_->step();
        }
        NoteSamples(batches.counts());
        const auto updates = static_cast<double>(steps - data_begin_);
        const double updates_an_epoch =
            job_.steps > 0 ? 0 : updates / static_cast<double>(job_.epochs);
        meter_.Report(updates_an_epoch, summary_);
        return Finish(saver);
    }

    // Whether the sum in the checkpoint of update `step` is one of the last updates of this run,
    // which may be longer or shorter than the run that saved it. (Skipped updates are not added.)
    Status CheckAverage(const TrainerProgress& progress, int64_t step, int64_t steps) const {
        const int64_t last = job_.trainer.update.average_last;
        if (last == 0 || !IsAveraged(step, steps)) return {};
        const int64_t added = step - std::max<int64_t>(0, steps - last);
        if (progress.averaged <= added && progress.averaged + progress.skipped >= added) return {};
        return MakeError(ErrorCode::kUsage,
                         "--average-last {}: the run of {} updates averages those from {} on; the "
                         "checkpoint of update {} has a sum of {}, of a run of another length. Use "
                         "that run's --steps or --epochs, an earlier checkpoint, or --ema",
                         last, steps, std::max<int64_t>(0, steps - last) + 1, step,
                         progress.averaged);
    }

    bool IsAveraged(int64_t step, int64_t steps) const {
        const UpdateOptions& update = job_.trainer.update;
        return update.ema > 0 || (update.average_last > 0 && step > steps - update.average_last);
    }

    // New ranks wait: saves this update, so that all ranks continue with them from its checkpoint.
    // The error goes to GoOn. OK: the new ranks have left, or the save failed.
    Status Grow(Saver& saver, int64_t step) {
        WEFT_TRY(Finish(saver));
        if (cluster_.rank() == 0) {
            const bool saved = saver.last() == StepFolder(job_.save.folder, step);
            if (!saved) growth_.RejectJoiners(step);
            const int count = saved ? growth_.Ready(job_) : 0;
            const Status joins = count > 0 ? cluster_.Admit(count) : Status();
            grows_ = !joins.ok();
            if (grows_) return joins;
        }
        return cluster_.Barrier("newcomers", Deadline::In(kAgreeMs));
    }

    // The data of the next update; null: there are no more. With grpo, the prompts' completions,
    // for several updates.
    Result<const Batch*> NextBatch(Trainer& trainer, BatchAhead& batches, const OpenedData& data,
                                   int64_t step, int64_t steps) {
        trainer.SetAgain(rollout_left_ > 0);
        if (rollout_left_ > 0) {
            --rollout_left_;
            return &rollout_.batch;
        }
        auto read = batches.Next(step < steps);
        bad_record_ = !read.ok() && IsBadRecord(read.error());
        if (!read.ok()) return read.error();
        if (!*read) return nullptr;
        if (cluster_.rank() == 0) LogDataNote(*data.set);
        batch_read_ = **std::move(read);
        if (!rollouts_) return &batch_read_;
        auto made = rollouts_->Next(trainer, batch_read_, RolloutSeed(step));
        no_rewards_ = !made.ok() && rollouts_->no_rewards();
        if (!made.ok()) return made.error();
        rollout_ = *std::move(made);
        rollout_left_ = job_.trainer.grpo.iterations - 1;
        return &rollout_.batch;
    }

    void NoteRollout(StepLine& line) const {
        line.tokens = rollout_.positions;
        line.values.insert(line.values.begin(), rollout_.values.begin(), rollout_.values.end());
    }

    bool IsSaved(int64_t step, int64_t steps) const {
        const int64_t every = job_.save.every;
        return every > 0 && (step % every == 0 || step == steps);
    }

    // The previous checkpoint could not be written. To lose no more updates, training stops on all
    // ranks, after one attempt to save the current weights in the result's space.
    Status StopUnsaved(const Trainer& trainer, const Loader& loader, Saver& saver, int64_t step) {
        save_fault_ = saver.fault();
        if (cluster_.rank() == 0) {
            Log(LogLevel::kWarning,
                "{}. Training stops here; Weft tries to write a checkpoint of step {} in the space "
                "that was reserved for the result",
                save_fault_, step);
        }
        summary_.stopped = true;
        return saver.Begin(step, StateOf(trainer, loader), SaveSpace::kWithoutResult);
    }

    // Updates failed. If all ranks have the same fault (a bad record, completions without rewards,
    // a gradient or a loss over the test part that is not finite), saves the updates before it.
    // Returns the error, with the checkpoint in its message.
    Error WithUpdatesSaved(const Trainer& trainer, const Loader& loader, Saver& saver,
                           Error error) {
        const int64_t step = summary_.steps;
        const bool no_batch = bad_record_ || no_rewards_;
        const bool shared = no_batch || trial_failed_ || trainer.diverged();
        if (!shared || job_.save.folder.empty() || step == summary_.resumed_at) return error;
        if (cluster_.rank() == 0) {
            Log(LogLevel::kWarning, "{}: training stops; a checkpoint of step {} is written",
                error.message, step);
        }
        // (A copy of the data may have become unreadable on one rank only.)
        const Status meet = cluster_.Barrier("updates failed", Deadline::In(kFailMs));
        if (!meet.ok()) return error;
        const std::string folder = StepFolder(job_.save.folder, step);
        Status saved = Finish(saver);
        if (saved.ok() && saver.last() != folder) {
            // (After a divergence, an older checkpoint may be the better one.)
            const SaveSpace room = no_batch ? SaveSpace::kWithoutResult : SaveSpace::kSpare;
            saved = saver.Begin(step, StateOf(trainer, loader), room);
            if (saved.ok()) saved = Finish(saver);
        }
        if (saver.last() == folder) {
            error.message += fmt::format(
                ". Checkpoint {} has all updates before it: --resume auto {}goes on from there",
                folder, bad_record_ && !job_.data.skip_bad ? "--skip-bad " : "");
        } else if (!saver.fault().empty()) {
            error.message += ". The updates before it could not be saved: " + saver.fault();
        }
        return error;
    }

    // Ends training after this update, on all ranks.
    Status Stop(int64_t step, int requests) {
        const std::string why =
            cluster_.rank() == 0 && IsTimeUp() && !StopRequested()
                ? "the time limit is near"
                : fmt::format("a signal came to {} of {} ranks", requests, cluster_.size());
        if (job_.save.folder.empty()) {
            return MakeError(ErrorCode::kCancelled, "stopped after step {}: {}", step, why);
        }
        if (cluster_.rank() == 0) {
            Log(LogLevel::kInfo, "{}: a checkpoint of step {} is written, then this job stops", why,
                step);
        }
        summary_.stopped = true;
        return {};
    }

    bool IsEvaluated(int64_t step, int64_t steps, bool ends_epoch) const {
        if (!evaluates_) return false;
        if (step == steps) return true;
        return job_.eval_every > 0 ? step % job_.eval_every == 0 : ends_epoch;
    }

    Status Evaluate(Trainer& trainer, const OpenedData& data, StepLine& line) {
        const int64_t begin_ns = NowNs();
        WEFT_ASSIGN(Loader loader, OpenTestLoader(job_, trainer.layout(), data));
        WEFT_TRY(trainer.ShowAverage(true));
        const auto evaluation = EvaluateAll(trainer, std::move(loader));
        const Status shown = trainer.ShowAverage(false);
        WEFT_TRY(NoteTried(evaluation));
        WEFT_TRY(shown);
        summary_.eval_s += SecondsSince(begin_ns);
        if (evaluation->stopped) return Stop(line.step, 1);
        line.eval_loss = summary_.eval_loss = evaluation->loss;
        line.eval_values = evaluation->values;
        return {};
    }

    bool IsSampled(int64_t step, int64_t steps, bool ends_epoch) const {
        if (!sampler_) return false;
        if (job_.sample.every > 0) return step % job_.sample.every == 0 || step == steps;
        return evaluates_ ? IsEvaluated(step, steps, ends_epoch) : step == steps || ends_epoch;
    }

    Status Sample(Trainer& trainer, StepLine& line) {
        const int64_t begin_ns = NowNs();
        WEFT_TRY(trainer.ShowAverage(true));
        auto samples = sampler_->Say(trainer);
        const Status shown = trainer.ShowAverage(false);
        WEFT_TRY(NoteTried(samples));
        WEFT_TRY(shown);
        summary_.sample_s += SecondsSince(begin_ns);
        if (samples->size() < job_.sample.prompts.size()) return Stop(line.step, 1);
        line.samples = *std::move(samples);
        return {};
    }

    // The status of an evaluation or of samples.
    template <typename T>
    Status NoteTried(const Result<T>& tried) {
        trial_failed_ = !tried.ok() && IsOwnFault(tried.error().code);
        return tried.ok() ? Status() : Status(tried.error());
    }

    TrainJob job_;
    cluster::Cluster& cluster_;
    TrainListener* listener_;
    TrainSummary summary_;
    std::unique_ptr<model_files::ModelSource> base_;  // the base of a CheckpointSource
    // Rank 0: folder of the checkpoint to resume from; empty: from the start.
    std::string resume_from_;
    // Rank 0: why the checkpoint of a stop is missing. failed_: the result could not be written,
    // and another attempt would not help.
    std::string stop_fault_;
    std::string save_fault_;  // why the checkpoint before the stop is missing, on all ranks
    std::string model_;       // identity of the trained model
    std::optional<uint64_t> model_seed_;  // of the checkpoint, if it differs from the job's
    bool failed_ = false;
    Status device_;  // of the last Trainer
    bool evaluates_ = false;
    bool bad_record_ = false;    // the last batch could not be read
    bool no_rewards_ = false;    // the last completions could not be judged
    bool trial_failed_ = false;  // the last evaluation or samples failed
    Cursor cursor_;              // position in the data after the last complete update
    bool test_part_read_ = false, samples_noted_ = false;
    DataIdentity content_;
    bool logged_data_ = false;
    int64_t batch_ = 0;       // sequences per update, over all ranks
    int64_t data_begin_ = 0;  // updates before the first one with this data
    StopScope stops_;
    ResumeSearch search_;
    Growth growth_;              // rank 0
    bool grows_ = false;         // rank 0: the epoch ends for newcomers, not after a loss
    bool with_joiners_ = false;  // this epoch has newcomers, and not all ranks are ready
    ReferenceTable reference_;
    std::optional<BestStep> best_;
    SavePlace place_;
    SpacePlan room_;
    const int64_t begin_ns_;
    // The longest time between two possible stops: an update (grpo: all with the same completions),
    // and what follows it.
    double longest_s_ = 0;
    RunMeter meter_;
    std::optional<TextSampler> sampler_;
    Batch batch_read_;
    // grpo: the completions of the current update, and the number of further updates with them.
    std::optional<Rollouts> rollouts_;
    Rollout rollout_;
    int64_t rollout_left_ = 0;
};

Status WorkOnTraining(cluster::Cluster& cluster) {
    WEFT_ASSIGN(const TrainJob job, TrainJobOf(cluster));
    CatchStops(job.save.interrupts);
    const auto summary = Run(job, cluster, nullptr).All();
    return summary.ok() ? Status() : Status(summary.error());
}

}  // namespace

Result<TrainSummary> RunTraining(const cluster::ClusterOptions& where, const TrainJob& asked,
                                 TrainListener& listener) {
    TrainJob job = asked;
    CatchStops(job.save.interrupts);
    WEFT_TRY(MakeAbsolute(job));
    WEFT_TRY(CheckTrainJob(job));  // (paths now include the working folder)
    cluster::ClusterOptions options = where;
    const int ranks = cluster::RanksOf(options);
    WEFT_TRY(PlanRecovery(job, ranks, options));
    options.links_of = LinksOfJob;
    const auto stages = MakeTrainLayout(ranks, 0, {.pp = ranks});
    const bool fewer = stages.ok() && !LinksOf(*stages, ranks).pairs.empty();
    options.names_layouts = fewer && job.trainer.pp != ranks;
    WEFT_TRY(cluster::CheckOptions(options));
    WEFT_ASSIGN(const auto cluster, cluster::Cluster::Launch(options, TrainJobToJson(job)));
    if (cluster->size() != ranks) {
        WEFT_ASSIGN(const TrainJob resized, TrainJobOf(*cluster));
        job.trainer.accumulation = resized.trainer.accumulation;
    }
    Run run(job, *cluster, &listener);
    auto summary = run.All();
    if (!summary.ok()) return run.WithPlace(cluster->ReportFailure(summary.error()));
    const Status ended = cluster->Shutdown(Deadline::In(cluster::kShutdownMs));
    if (!ended.ok()) {
        Log(LogLevel::kWarning, "the results are complete, but not all ranks ended: {}",
            ended.error().message);
    }
    return summary;
}

const cluster::JobKind kTrainJob{kTrainJobKind,          "training",
                                 WorkOnTraining,         ExamineForTraining,
                                 /*handles_stops=*/true, kStoppedStatus};

}  // namespace weft::train
