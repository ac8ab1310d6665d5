// Rank: one rank's share of a model, loaded and ready to run steps. All ranks run the same code. On
// rank 0, an Engine (engine.h) decides the steps; the other ranks run the steps that rank 0 sends
// (RunWorker).
//
// Make reads the model's header, rejects unsupported architectures and layouts, and makes the
// Program. Enter runs once per epoch. Before any weight is read, it checks that all ranks have the
// same model file, the same layout, shards and options, and enough memory. Then it joins the groups
// of the collectives, reads this rank's shard in parallel, and runs the self-test (self_test.h).
// Weights stay loaded from one epoch to the next (recovery.h) if the Rank still Serves the job.
// Thread: one caller; loading uses the rank's threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "cluster/worker/memory_claims.h"
#include "engine/job.h"
#include "engine/page_store/page_key.h"
#include "engine/page_store/slot_file.h"
#include "engine/rank/recent_costs.h"
#include "engine/rank/shares.h"
#include "engine/rank/step_links.h"
#include "engine/rank/step_message.h"
#include "engine/report.h"
#include "engine/sampling/logits_row.h"
#include "engine/start/model_identity.h"
#include "engine/start/self_test.h"
#include "fabric/table.h"
#include "hw/power.h"
#include "model/draft_head.h"
#include "model/model.h"
#include "model_files/model_file.h"

namespace weft::engine {

class RankPages;

class Rank {
  public:
    // `cluster` must outlive the Rank. source: the open model (weight_stream.h); null: Make opens
    // job.model. device: the device of another Rank in this process, so that both take turns on one
    // team of threads; null: the Rank opens a device. If shard borders move, only rank 0 logs it.
    static Result<std::unique_ptr<Rank>> Make(
        const Job& job, cluster::Cluster& cluster,
        std::unique_ptr<model_files::ModelSource> source = nullptr,
        std::shared_ptr<backend::Device> device = nullptr);
    ~Rank();
    // Collective. After an error it may be called again, in another epoch.
    Status Enter();
    // Replaces Enter on a host that may join (examine.h): checks device and memory as far as
    // possible without the other ranks. identities: the identities of the ranks' devices, by rank;
    // empty: unknown. freed_bytes: memory that ranks of this host would free before the host joins.
    Status CheckAlone(const std::vector<std::string>& identities, uint64_t freed_bytes);
    // The hash of the model's header, the identities of model and adapters, and the identities of
    // all ranks' devices (empty if they are not compared). Valid after Enter.
    const std::string& fingerprint() const { return fingerprint_; }
    const ModelIdentity& identity() const { return identity_; }
    const std::vector<std::string>& identities() const { return identities_; }
    // Whether `job` gives this rank the same shard and the same place on its host in the current
    // epoch of the cluster. If not, make another Rank.
    bool Serves(const Job& job) const;
    // Takes the sizes of the cache from the job of a later epoch, as a new rank has them, in case
    // that the ranks size their caches again.
    void TakeCache(const Job& job);
    // Releases the cluster's links before the epoch ends.
    void LeaveEpoch();

    // Runs one step of the model or of the draft head (StepKind). Rank 0 first sends the step to
    // the other ranks; it gets the logits.
    Status Run(const StepData& step);
    // The parts of Run, for rank 0 of a job with several pipeline stages. By these parts, rank 0
    // computes the next step while each later stage computes an earlier step. Compute runs rank 0's
    // ops, Hand sends their result to the next stage, and Collect receives the last stage's result.
    // With as many steps in flight as stages, call in this order: Compute(next), Collect(oldest),
    // Hand(next). This order cannot deadlock. When all later stages wait to send, and the last one
    // waits for rank 0, the second stage has read all steps but the next one, which then fits into
    // its window. Rank 0 receives the oldest result before it sends more.
    bool pipelined() const;
    Status Compute(const StepData& step);
    Status Hand(const StepData& step);
    Status Collect(const StepData& step);
    // Workers: waits for the next step from rank 0.
    Status Receive(StepData& step) { return steps_.Receive(step); }
    // Rank 0: the logits of the last step's output rows, [rows, vocab]. StepData::asks must have
    // been empty.
    Status ReadLogits(int64_t rows, std::vector<float>& out);
    // The first `columns` logits (-1: all) of one output row; All() stores them in `buffer`. If
    // another pipeline stage computed the row, only the part in StepData::asks is available.
    LogitsRow Logits(int64_t row, std::vector<float>& buffer, int64_t columns = -1);
    // Rank 0, with Job::draft_head: the logits of one output row of the draft head's last run, of
    // all tokens of the model. Valid until the next call.
    Result<LogitsRow> DraftLogits(int64_t row, std::vector<float>& buffer);
    // Rank 0: the draft head has a vocabulary of its own, so its rows are read whole.
    bool maps_drafts() const { return !head_tokens_.empty(); }
    // Rows of a block of the draft head; 0: it drafts one token at a time.
    int64_t block_rows() const { return hyper_.block_rows(); }
    // Rank 0: the output of the final norm for rows of the last step, [rows, hidden]. Requires
    // has_hidden().
    Status ReadHidden(int64_t first_row, int64_t rows, std::vector<float>& out);
    bool has_hidden() const { return hidden_ != program::kNoValue; }
    // Pages kept outside of the device's memory (page_store/rank_pages.h). Null: the job keeps
    // none.
    RankPages* pages() { return pages_.get(); }
    // Rank 0: the keys of pages in this epoch; none: the job keeps none.
    std::optional<PageKeys> page_keys() const { return page_keys_; }
    // Rank 0: all ranks keep their shares of these pages.
    Status SavePages(int64_t step_number, std::vector<KeyedPage> pages);
    // Rank 0: all ranks fill these pages. Returns the number of first pages that all ranks filled.
    Result<int64_t> RestorePages(int64_t step_number, std::vector<KeyedPage> pages);
    // Rank 0: slots (page_store/slot_file.h; rank_slots.cc). The outcome of all ranks: the bytes of
    // all files, or the first rank's error.
    struct SlotResult {
        int64_t bytes = 0;
        std::optional<Error> error{};
    };
    // Saves pages of a text that are in the devices' memory, and perhaps the state after them.
    Result<SlotResult> SaveSlot(int64_t step_number, const std::string& name,
                                std::vector<int32_t> tokens, int32_t adapter,
                                std::vector<KeyedPage> pages);
    // The head of a file, if its pages belong to this job. Errors: as SlotFile; kUsage: another
    // job's file.
    Result<SlotHead> ReadSlot(const std::string& name) const;
    // Keeps what the file has by the keys of `pages`.
    Result<SlotResult> LoadSlot(int64_t step_number, const std::string& name, const SlotHead& head,
                                std::vector<KeyedPage> pages);

    const Job& job() const { return job_; }
    const model::Hyper& hyper() const { return hyper_; }
    const model_files::ModelSource& source() const { return *source_; }
    const program::Program& program() const { return program_; }
    const model::Layout& layout() const { return shard_.layout; }
    int64_t kv_pages() const { return kv_pages_; }
    // Slots of recurrent state; 0: the model has none.
    int64_t state_slots() const { return hyper_.has_state() ? job_.state_slots : 0; }
    // Element type in which the tensor ranks' all-reduces are sent. kAuto before Enter, or if there
    // are not all-reduces.
    backend::SumWire wire() const { return wire_; }
    backend::SumWire prompt_wire() const { return prompt_wire_; }
    cluster::Cluster& cluster() { return cluster_; }
    const std::shared_ptr<backend::Device>& device() const { return device_; }
    int64_t page_tokens() const { return device_->info().target.page_tokens; }
    backend::MemoryUse memory() const { return executable_->memory(); }
    // An error if the rank's device has failed.
    Status device_status() const { return device_ == nullptr ? Status() : device_->status(); }
    // Counts the work of `other` between this rank's steps as progress of this rank, too; null:
    // counts no other work. `other` must outlive this object, or the next call.
    void CountProgressOf(const Rank* other);
    // Number of all-reduces in one step with output rows.
    int all_reduces() const;
    RankReport Report() const;
    // Collective: the reports of all ranks, by rank, on every rank.
    Result<std::vector<RankReport>> GatherReports();
    // Rank 0, between two steps: the reports of all ranks, without traces.
    Result<std::vector<RankReport>> Survey(int64_t step_number);
    // Rank 0: while idle is set (for example, while it waits for a user), the rank counts as making
    // progress.
    void SetIdle(bool idle) { idle_.store(idle, std::memory_order_relaxed); }

  private:
    backend::Step ViewOf(const StepData& step);
    Rank(const Job& job, cluster::Cluster& cluster);
    int64_t Progress() const;
    Status Plan();
    Status OpenSource();
    // Measurements for --tensor-split auto and for the choice of a layout.
    struct Speeds {
        std::vector<RankSpeed> ranks;
        std::string text;  // log text about all ranks
    };
    using AfterSpeed = std::function<Status(const std::function<Status()>& compute_piece)>;
    Result<Speeds> MeasureSpeeds(double piece_bytes = 0, const AfterSpeed& then = nullptr);
    Result<backend::DeviceInfo> DescribeDevice() const;
    Status ChooseLayout();
    Status MeasureLayouts(const backend::DeviceInfo& info);
    void UseStages(const std::string& why);
    Status UseStagesIfApart();
    Status ChooseShares();
    Status PlanShard();
    // The shard of a rank and its place on its host, which depend on the epoch.
    struct Place {
        std::string shard;   // as text
        std::string shards;  // a hash of the shards of all ranks
        std::string device;  // the name, from the job
        int local_rank = 0, ranks_here = 0;
        std::vector<int> cores;
        bool cores_shared = false;
        bool operator==(const Place&) const = default;
    };
    Place PlaceOf(const Job& job, const model::ShardPlan& plan) const;
    Status AgreeOnLayout();
    Result<bool> IsOfAllTensorRanks(std::string_view what, bool mine);
    Status AgreeOnHost();
    Status AgreeOnParts();
    void DropExecutable();
    Status Compile();
    Result<uint64_t> DriveMemory() const;
    std::string DriveAdvice() const;
    enum class Experts { kAsAsked, kShared };  // kShared: as with --experts auto
    Status CompileOn(const std::string& name, Experts experts = Experts::kAsAsked);
    bool MayShareExperts(const Status& compiled) const;
    Status MoveToCpu(const std::string& why);
    void ReportProgress();
    Status CheckPlaces();
    Status CheckDevices();
    std::string UnlikeText(size_t rank, size_t other, const std::vector<std::string>& all) const;
    Error UnlikeDevices(size_t rank, size_t other, const std::vector<std::string>& all) const;
    std::vector<cluster::MemoryNeed> Needs(int64_t tokens) const;
    std::string CacheText() const;
    void SetCache(int64_t tokens);
    Status AgreeOnCache();
    Status CheckMemory(uint64_t freed_bytes = 0);
    Status JoinTensor(const std::vector<int>& peers);
    std::string MissingLink(const std::vector<int>& peers) const;
    Status JoinGroups();
    Status AgreeOnWire(const std::vector<int>& peers);
    Status AgreeOnNarrowest(std::string_view name, backend::SumWire told, std::string_view flag,
                            backend::SumWire& wire);
    void CheckTable() const;
    bool IsFed() const { return job_.feed && cluster_.size() > 1; }
    Status Load();
    void LoadUses();
    void SaveUses();
    Status LoadAll(const std::vector<program::ValueId>& weights);
    Status LoadFed(const std::vector<program::ValueId>& weights);
    Status LoadOne(program::ValueId id);
    Status CheckStop() const;
    Status RunPart(const StepData& step, const program::OpRange& ops);
    Status RunDraftHead(const StepData& step);
    Status ReadDraftTokens();
    Status AgreeOnBytes();
    Status EnterPages();
    Status NamePages();
    Status CheckKeyed(const StepData& step) const;
    Result<int64_t> RunKeyed(const StepData& step);
    Result<SlotResult> RunSlot(const StepData& step, SlotHead head);
    Result<SlotResult> AgreeOnSlot(const SlotResult& mine);
    Status CheckStepRows(const StepData& step) const;
    Status VerifyReplicas();
    // With Job::warm_up: steps before the first request (start/warm_up.cc).
    Status WarmUp();
    void SetWarmUpStep(int64_t sequences, int64_t rows, int64_t position, int32_t adapter,
                       StepData& step) const;
    // The self-test (run_self_test.cc).
    Status RunSelfTest(const std::string& model);
    // The recorded result of a job with one rank. The record comes from the same kind of device as
    // the device of rank device_of; -1: there is no record.
    struct DeviceRecord {
        SelfTestRecord of_one{};
        int device_of = -1;
    };
    std::string SelfTestPath(const std::string& model, const std::string& identity) const;
    Result<DeviceRecord> FindRecord(const std::string& model) const;
    bool IsUnlike(int stage, const DeviceRecord& record) const;
    Status LeaveRecord(const std::string& path, int64_t tokens);
    Result<std::vector<OpDigest>> RunSelfTestPrompt(int64_t tokens, bool blocks);
    Result<std::vector<float>> ReadSelfTestResult(int64_t tokens);
    Status ExplainReplicas(const std::vector<OpDigest>& digests);
    Status ExplainRecord(int64_t tokens, const DeviceRecord& of_device, double distance);
    Status ShareRecord(DeviceRecord& record);
    double OpTolerance(const DeviceRecord& record) const;
    Status RefuseToServe(Error error);
    std::string OpText(size_t stage, size_t index) const;
    // A rank counts as lost only after the cluster's timeout, so a collective call waits as long.
    Deadline WaitForRanks(int64_t least_ms) const;
    Result<std::vector<RankReport>> ExchangeReports();
    std::string ShareText() const;
    friend Status RunWorker(Rank& rank);
    Status GatherTraces(std::vector<RankReport>& reports);
    void Record(const StepData& step);
    void WriteTraced();
    // The communicators for the ops of `step`.
    backend::Communicators StepGroups(const StepData& step) {
        if (stages_) {
            const bool logits = job_.outputs == model::Outputs::kLogits;
            stages_->Expect(logits ? std::span(step.asks) : std::span<const RowRequest>());
        }
        backend::Communicators groups{tensor_.get(), stages_ ? &*stages_ : nullptr};
        if (tensor_ != nullptr) groups.wire = wire_;
        if (tensor_ != nullptr) groups.prompt_wire = prompt_wire_;
        groups.parts = parts_;
        return groups;
    }

    Job job_;
    struct {
        int64_t ctx = 0, kv_tokens = 0;
    } largest_;  // sizes of the cache, as the job requests them
    cluster::Cluster& cluster_;
    std::unique_ptr<model_files::ModelSource> source_;
    model::Hyper hyper_;
    model::Shard shard_;
    Place place_;
    bool one_host_ = false;  // the tensor ranks of this stage have links within one host only
    bool parts_ = true;      // the tensor ranks of this stage can run steps in parts
    program::Program program_;
    program::ValueId logits_ = program::kNoValue, hidden_ = program::kNoValue;
    model::DraftHeadOps head_;      // head_.step: the ops of a model's step, set with or without a
                                    // draft head
    int64_t head_rows_ = 0;         // output rows of the head's last run
    std::vector<float> head_made_;  // hidden states of these rows, for the head's next run
    std::vector<int32_t> head_tokens_;  // the model's token of each token of an EAGLE-3 head;
                                        // empty: the same vocabulary
    std::vector<float> head_row_;       // a row of logits of the model's vocabulary
    int64_t kv_pages_ = 0;
    bool entered_ = false;  // Enter was called before
    bool warm_ = false;     // executable_ has run WarmUp
    std::string fingerprint_;
    ModelIdentity identity_;
    std::vector<std::string> identities_;
    std::vector<uint8_t> is_loaded_;           // by ValueId; each thread writes other entries
    std::shared_ptr<backend::Device> device_;  // shared by two Ranks if there is a draft model
    program::HostOps host_ops_;                // of device_
    bool may_move_ = false;                    // `auto` chose a GPU, so the rank may still move to
                                               // the CPU
    std::unique_ptr<backend::Executable> executable_;
    std::string uses_path_;      // file of the experts' uses (expert_use.h); "": not kept
    int64_t uses_saved_ns_ = 0;  // last time of SaveUses
    std::unique_ptr<PowerMeter> power_;
    std::unique_ptr<coll::Comm> tensor_, world_;
    std::optional<StepLinks> stages_;  // uses world_
    fabric::NetTableSource table_;     // of tensor_
    // The wire types of tensor_'s sums, the same in all epochs.
    backend::SumWire wire_ = backend::SumWire::kAuto, prompt_wire_ = backend::SumWire::kAuto;
    std::unique_ptr<RankPages> pages_;
    std::optional<PageKeys> page_keys_;
    StepChannel steps_{nullptr};
    std::vector<backend::StepSequence> views_;
    std::vector<int32_t> first_tokens_;  // model_files::FirstTokenOf, by adapter; empty: all are 0
    std::vector<int32_t> own_tokens_;    // of the step, if adapters have own embeddings

    // executable_, once it exists: the control thread reads its progress.
    std::atomic<const backend::Executable*> running_{nullptr};
    std::atomic<int64_t> loaded_{0};      // weights loaded so far: progress while loading
    std::atomic<int64_t> idle_ticks_{0};  // progress while idle
    std::atomic<bool> idle_{false};
    const Rank* other_ = nullptr;  // changes only while the cluster has no progress function
    std::atomic<uint64_t> read_bytes_{0};
    std::atomic<uint64_t> fed_bytes_{0};  // sent to other ranks
    double load_s_ = 0;
    double step_s_ = 0;
    RecentCosts all_reduce_us_;  // of decode steps
    struct TracedStep {
        int64_t number = 0;
        std::vector<backend::OpTiming> timings;
    };
    std::vector<TracedStep> traced_;  // steps of program_ that are not yet in trace_
    size_t traced_ops_ = 0;
    std::string trace_;
};

// A worker's main loop after Enter: runs steps until rank 0 ends the job.
Status RunWorker(Rank& rank);

}  // namespace weft::engine
