#include "engine/rank/rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "backend/transfer.h"
#include "base/log.h"
#include "base/on_threads.h"
#include "base/start_thread.h"
#include "engine/page_store/rank_pages.h"
#include "engine/rank/expert_use.h"
#include "engine/rank/sum_wire.h"
#include "engine/rank/trace.h"
#include "engine/rank/weight_stream.h"
#include "engine/start/verify_model.h"
#include "hw/cpu.h"
#include "model/load.h"
#include "model_files/content.h"
#include "net/link.h"

namespace weft::engine {
namespace {

// Loading waits for the slowest disk while every rank makes progress.
constexpr int64_t kAgreeMs = 600'000;
constexpr size_t kQuantiles = 128;  // of all-reduce costs, in a report
constexpr int64_t kLeastReportMs = 5000;
constexpr double kSaveUsesS = 300;
// A table is wrong if the median over at least this many decode steps' all-reduces differs by this
// factor: in a step caches are cold, and other ranks may be late.
constexpr size_t kLeastToJudge = 200;
constexpr double kWrongTable = 10;
// Limits on the trace: only the first steps of a long-running server are traced.
constexpr size_t kMostTraceBytes = 256 << 20;
constexpr size_t kMostTracedOps = 1 << 18;
// Trace bytes of all ranks in one call: traces of many ranks exceed what one gathers.
constexpr size_t kTraceRoundBytes = 32 << 20;

// Half of each window is for the tensor group's collectives, half for steps, sends and logits.
size_t HalfWindow(const net::Fabric& fabric) {
    size_t window = SIZE_MAX;
    for (const auto& link : fabric.links) {
        if (link != nullptr) window = std::min(window, link->window_bytes());
    }
    return window / 2 / 4096 * 4096;
}

// 1000 if `all` is 0.
int Thousandths(int64_t done, int64_t all) {
    if (all <= 0) return 1000;
    return static_cast<int>(1000.0 * static_cast<double>(done) / static_cast<double>(all));
}

}  // namespace

Result<std::unique_ptr<Rank>> Rank::Make(const Job& job, cluster::Cluster& cluster,
                                         std::unique_ptr<model_files::ModelSource> source,
                                         std::shared_ptr<backend::Device> device) {
    std::unique_ptr<Rank> rank(new Rank(job, cluster));
    rank->source_ = std::move(source);
    rank->device_ = std::move(device);
    cluster.SetPhase("load");
    rank->ReportProgress();
    WEFT_TRY(rank->Plan());
    return rank;
}

int64_t Rank::Progress() const {
    const backend::Executable* running = running_.load(std::memory_order_acquire);
    const int64_t steps = running == nullptr ? 0 : running->progress();
    return steps + loaded_.load() + idle_ticks_.load();
}

Status Rank::Enter() {
    cluster_.SetPhase("load");
    WEFT_ASSIGN(fingerprint_, source_->Fingerprint());
    WEFT_TRY(cluster_.Agree("model file", fingerprint_, Deadline::In(kAgreeMs)));
    if (!job_.adapters.empty()) {
        WEFT_TRY(cluster_.Agree("LoRA adapters", model_files::FingerprintOfAdapters(*source_),
                                Deadline::In(kAgreeMs)));
    }
    WEFT_TRY(AgreeOnLayout());
    WEFT_TRY(AgreeOnHost());
    WEFT_TRY(CheckPlaces());
    WEFT_TRY(AgreeOnParts());
    entered_ = true;
    WEFT_TRY(JoinGroups());
    WEFT_TRY(EnterPages());
    model_files::HashReads(AllFiles(*source_));
    WEFT_TRY(Load());
    WEFT_TRY(cluster_.Barrier("loaded", Deadline::In(kAgreeMs)));
    WEFT_TRY(AgreeOnBytes());
    WEFT_TRY(NamePages());
    cluster_.SetPhase("self-test");
    WEFT_TRY(RunSelfTest(identity_.model));
    WEFT_TRY(WarmUp());
    cluster_.SetPhase(nullptr);
    return {};
}

// Kept pages and slots need the identity, and the self-test's record, which a rank alone leaves.
// (Experts on a drive are not read for the record.) A host that joins is compared whenever there is
// a second copy.
Status Rank::AgreeOnBytes() {
    cluster_.SetPhase("model verification");
    const bool alone = cluster_.size() == 1;
    VerifyOptions options;
    options.needed = !job_.cache_dir.empty() || !job_.slot_dir.empty() ||
                     (alone && job_.self_test && !job_.weights_on_drive);
    options.anew = job_.verify_model;
    WEFT_ASSIGN(identity_, AgreeOnModel(cluster_, *source_, options, loaded_));
    return {};
}

void Rank::LeaveEpoch() {
    if (executable_ != nullptr) executable_->ForgetGroups();
    steps_ = StepChannel(nullptr);
    tensor_.reset();
    stages_.reset();
    world_.reset();
}

Rank::Rank(const Job& job, cluster::Cluster& cluster) : job_(job), cluster_(cluster) {
    TakeCache(job);
}

Rank::~Rank() {
    SaveUses();
    cluster_.SetProgress(nullptr);
}

void Rank::ReportProgress() {
    cluster_.SetProgress([this] {
        if (idle_.load(std::memory_order_relaxed)) idle_ticks_.fetch_add(1);
        return Progress() + (other_ == nullptr ? 0 : other_->Progress());
    });
}

void Rank::CountProgressOf(const Rank* other) {
    cluster_.SetProgress(nullptr);
    other_ = other;
    ReportProgress();
}

// Makes the tensor group, unless ChooseLayout has made it, and its table.
Status Rank::JoinTensor(const std::vector<int>& peers) {
    if (tensor_ != nullptr) return {};
    if (const std::string missing = MissingLink(peers); !missing.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "{} have no data link, which tensor ranks need. --pp {} works, because "
                         "pipeline stages need links between consecutive ranks only",
                         missing, cluster_.size());
    }
    const coll::Channel first{0, HalfWindow(cluster_.fabric()), 0, net::kFlags / 2};
    WEFT_ASSIGN(tensor_, coll::Comm::Make(cluster_.fabric(), peers, first, cluster_.timeout_ms()));
    WEFT_ASSIGN(table_, fabric::TuneGroup(cluster_, *tensor_, peers, job_.net_table));
    return {};
}

// "rank 1 (host b) and rank 3 (host d)"; "": this rank has a link to each of `peers`.
std::string Rank::MissingLink(const std::vector<int>& peers) const {
    const auto& links = cluster_.fabric().links;
    const auto name = [&](int rank) {
        return fmt::format("rank {} (host {})", rank, cluster_.host(rank).name);
    };
    for (const int peer : peers) {
        if (peer == cluster_.rank() || links[static_cast<size_t>(peer)] != nullptr) continue;
        return fmt::format("{} and {}", name(cluster_.rank()), name(peer));
    }
    return "";
}

Status Rank::JoinGroups() {
    if (cluster_.size() == 1) return {};
    net::Fabric& fabric = cluster_.fabric();
    const size_t half = HalfWindow(fabric);
    std::vector<int> everyone(static_cast<size_t>(cluster_.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const coll::Channel second{half, half, net::kFlags / 2, net::kFlags / 2};
    WEFT_ASSIGN(world_, coll::Comm::Make(fabric, everyone, second, cluster_.timeout_ms()));
    stages_.emplace(*world_);
    const model::Layout& layout = shard_.layout;
    steps_ = layout.pp == 1 ? StepChannel(world_.get())
                            : StepChannel(world_.get(), StepChannel::RouteOf(cluster_.rank(),
                                                                             layout.tp, layout.pp));
    if (shard_.layout.tp == 1) return {};
    std::vector<int> peers;
    for (int t = 0; t < shard_.layout.tp; ++t) peers.push_back(shard_.stage * shard_.layout.tp + t);
    WEFT_TRY(JoinTensor(peers));
    return AgreeOnWire(peers);
}

// One wire type for all stages, the narrowest that a group proposes, and one for rows of prompts;
// both stay in later epochs.
Status Rank::AgreeOnWire(const std::vector<int>& peers) {
    const std::string& host = cluster_.host(peers.front()).boot_id;
    const bool several =
        std::ranges::any_of(peers, [&](int rank) { return cluster_.host(rank).boot_id != host; });
    const auto is_auto = [](backend::SumWire wire) { return wire == backend::SumWire::kAuto; };
    const SumWires choice = AutoSumWires(device_->info(), several, tensor_->tuning());
    if (is_auto(wire_)) wire_ = job_.wire;
    if (is_auto(wire_)) wire_ = choice.all;
    WEFT_TRY(AgreeOnNarrowest("wire", job_.wire, "--allreduce-dtype", wire_));
    if (is_auto(prompt_wire_)) prompt_wire_ = job_.prompt_wire;
    const bool chooses = is_auto(prompt_wire_);
    // A type that the user chose for all rows also applies to prompts.
    if (chooses) prompt_wire_ = is_auto(job_.wire) ? std::max(wire_, choice.prompts) : wire_;
    WEFT_TRY(AgreeOnNarrowest("prompt wire", job_.prompt_wire, "--prompt-allreduce-dtype",
                              prompt_wire_));
    if (chooses && prompt_wire_ != wire_ && cluster_.rank() == 0) {
        Log(LogLevel::kInfo,
            "slow network ({:.0f} MB/s per all-reduce): prompts of {} tokens or more send their "
            "all-reduces as {}, other rows as {}. Answers to such prompts have other bits than "
            "over "
            "a fast network, and than those that fewer ranks give after a loss. "
            "--prompt-allreduce-dtype {} keeps the bits and sends more bytes",
            1 / coll::UsAByte(tensor_->tuning()), kLeastNarrowPrompt, SumWireName(prompt_wire_),
            SumWireName(wire_), SumWireName(wire_));
    }
    return {};
}

// Sets `wire` to the narrowest type that a rank proposes. told: the job's type, which `flag` sets.
Status Rank::AgreeOnNarrowest(std::string_view name, backend::SumWire told, std::string_view flag,
                              backend::SumWire& wire) {
    WEFT_ASSIGN(const std::vector<std::string> words,
                cluster_.AllGather(std::string(name), SumWireName(wire), Deadline::In(kAgreeMs)));
    for (const std::string& word : words) {
        WEFT_ASSIGN(const backend::SumWire theirs, ParseSumWire(word));
        wire = std::max(wire, theirs);
    }
    if (told != backend::SumWire::kAuto && told != wire) {
        return MakeError(ErrorCode::kCorrupt,
                         "rank {} was told to send sums as {}, the others send {}: all ranks need "
                         "the same {}",
                         cluster_.rank(), SumWireName(told), SumWireName(wire), flag);
    }
    return {};
}

// Deletes a cached table whose times differ from this run's.
void Rank::CheckTable() const {
    if (tensor_ == nullptr || table_.path.empty()) return;
    std::vector<float> costs = all_reduce_us_.all();
    if (costs.size() < kLeastToJudge) return;
    const auto middle = costs.begin() + static_cast<ptrdiff_t>(costs.size() / 2);
    std::ranges::nth_element(costs, middle);
    const DType sums = device_->info().target.float64_reductions ? DType::kF64 : DType::kF32;
    const auto bytes = static_cast<size_t>(backend::SumBytes(wire_, sums, hyper_.hidden));
    const double expected_us = coll::PredictedUs(tensor_->tuning(), bytes);
    const double seen_us = static_cast<double>(*middle);
    if (expected_us <= 0 || seen_us <= kWrongTable * expected_us) return;
    Log(LogLevel::kDebug,
        "all-reduces of {} bytes took {:.1f} us, the fabric's table says {:.1f} us: the next run "
        "measures again",
        bytes, seen_us, expected_us);
    fabric::ForgetTable(table_);
}

Status Rank::Load() {
    const int64_t begin_ns = NowNs();
    std::vector<program::ValueId> weights;
    is_loaded_.resize(program_.values.size());
    for (size_t i = 0; i < program_.values.size(); ++i) {
        if (program_.values[i].storage == program::Storage::kWeight && is_loaded_[i] == 0) {
            weights.push_back(static_cast<program::ValueId>(i));
        }
    }
    // Largest first, so that no thread has a large one at the end.
    std::ranges::stable_sort(weights, std::greater<>{}, [&](program::ValueId id) {
        return program_.value(id).shape.Elements(0, 0);
    });
    // A device may have pinned this thread to one core, which new threads would inherit.
    const PinnedThread pinned(cluster_.cores());
    const Status status = IsFed() ? LoadFed(weights) : LoadAll(weights);
    load_s_ += SecondsSince(begin_ns);
    if (status.ok() && !weights.empty()) LoadUses();
    return status;
}

// The experts that earlier jobs used most are read first (expert_use.h).
void Rank::LoadUses() {
    uses_path_ = job_.weights_on_drive ? ExpertUsePath(fingerprint_) : "";
    uses_saved_ns_ = NowNs();
    if (uses_path_.empty()) return;
    executable_->SetExpertUse(UsesOf(program_, LoadExpertUse(uses_path_), shard_.experts.begin));
}

// (Ranks that share experts save the same counts.)
void Rank::SaveUses() {
    if (uses_path_.empty() || executable_ == nullptr) return;
    uses_saved_ns_ = NowNs();
    const ExpertCounts counts = CountsOf(program_, executable_->expert_use());
    const Status saved = SaveExpertUse(uses_path_, counts, shard_.experts.begin);
    if (saved.ok()) return;
    Log(LogLevel::kDebug, "the uses of experts are not kept: {}", saved.error().message);
    uses_path_.clear();
}

// Rank 0 loads its own shard and serves the other ranks, which have no file.
Status Rank::LoadFed(const std::vector<program::ValueId>& weights) {
    if (cluster_.rank() != 0) {
        auto* fed = dynamic_cast<StreamedSource*>(source_.get());
        WEFT_CHECK(fed != nullptr);
        fed->Connect(world_.get());
        WEFT_TRY(LoadAll(weights));
        return fed->LogDone();
    }
    std::atomic<bool> stop{false};
    Status served;
    std::thread server;
    WEFT_TRY(
        StartThread(server, [&] { served = StreamWeights(*world_, *source_, stop, fed_bytes_); }));
    Status own = LoadAll(weights);
    if (!own.ok()) stop = true;
    server.join();
    return own.ok() ? served : own;
}

Status Rank::LoadAll(const std::vector<program::ValueId>& weights) {
    std::atomic<int64_t> done{0};
    int64_t all = 0;
    for (const program::ValueId id : weights) all += program_.value(id).shape.Elements(0, 0);
    cluster_.SetLoaded(Thousandths(0, all));
    // With streamed weights, one thread packs while another waits for the wire.
    const size_t least = IsFed() && cluster_.rank() != 0 ? 2 : 1;
    const size_t threads = std::max(least, cluster_.cores().size());
    return OnThreads(threads, weights.size(), [&](size_t i) -> Status {
        WEFT_TRY(LoadOne(weights[i]));
        done += program_.value(weights[i]).shape.Elements(0, 0);
        cluster_.SetLoaded(Thousandths(done, all));
        return {};
    });
}

// Whether loading must end.
Status Rank::CheckStop() const {
    if (cluster_.stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    const net::PeerMonitor* monitor = cluster_.monitor();
    if (monitor != nullptr && monitor->Failed()) return monitor->Failure();
    return {};
}

Status Rank::LoadOne(program::ValueId id) {
    WEFT_TRY(CheckStop());
    const program::Value& value = program_.value(id);
    const auto read = [&](int64_t row, int64_t count, std::span<std::byte> out) -> Status {
        // A partly read weight would have to be read again in the next epoch.
        if (!cluster_.recovers()) WEFT_TRY(CheckStop());
        uint64_t bytes = 0;
        Status status = model::ReadWeight(*source_, value, row, count, out, &bytes);
        read_bytes_.fetch_add(bytes, std::memory_order_relaxed);
        loaded_.fetch_add(1, std::memory_order_relaxed);
        return status;
    };
    WEFT_TRY(executable_->LoadWeight(id, read));
    is_loaded_[static_cast<size_t>(id)] = 1;
    return {};
}

backend::Step Rank::ViewOf(const StepData& step) {
    backend::Step view = step.View(views_);
    if (!first_tokens_.empty()) {
        own_tokens_ = step.tokens;
        for (const StepData::Sequence& s : step.sequences) {
            const int32_t first = first_tokens_[static_cast<size_t>(s.adapter)];
            for (int32_t i = 0; i < s.row_count; ++i) {
                own_tokens_[static_cast<size_t>(s.row_begin + i)] += first;
            }
        }
        view.tokens = own_tokens_;
    }
    view.wanted = step.wanted;
    view.wanted.value = logits_;
    // The last stage picks the best logits.
    if (!step.asks.empty()) view.wanted.top = 0;
    return view;
}

Status Rank::Run(const StepData& step) {
    if (cluster_.rank() == 0) WEFT_TRY(steps_.Send(step));
    if (step.kind == StepKind::kStop || step.kind == StepKind::kReport) return {};
    WEFT_TRY(CheckStepRows(step));
    const int64_t begin_ns = NowNs();
    if (step.kind != StepKind::kRun) {
        WEFT_TRY(RunDraftHead(step));
        step_s_ += SecondsSince(begin_ns);
        return {};
    }
    WEFT_TRY(CheckKeyed(step));
    if (!step.keyed.empty()) WEFT_TRY(pages_->Save(step.keyed));
    WEFT_TRY(executable_->Run(head_.step, ViewOf(step), StepGroups(step)));
    step_s_ += SecondsSince(begin_ns);
    Record(step);
    if (!uses_path_.empty() && SecondsSince(uses_saved_ns_) > kSaveUsesS) SaveUses();
    return job_.verify ? VerifyReplicas() : Status();
}

// A further run starts from the states of the previous run's output rows, on every rank, or drafts
// blocks.
Status Rank::RunDraftHead(const StepData& step) {
    const bool on = step.kind == StepKind::kGuessOn;
    const auto rows = static_cast<int64_t>(step.tokens.size());
    if (!job_.draft_head) {
        return MakeError(ErrorCode::kCorrupt,
                         "step {} from rank 0 is for a draft head, and this job has none. Run the "
                         "same build of Weft on all hosts",
                         step.number);
    }
    if (on && block_rows() == 0 && rows > head_rows_) {
        return MakeError(ErrorCode::kCorrupt,
                         "step {} from rank 0 has {} rows for the draft head, whose last run had "
                         "{} output rows; expected no more rows than these. Run the same build of "
                         "Weft on all hosts",
                         step.number, rows, head_rows_);
    }
    head_rows_ = static_cast<int64_t>(step.output_rows.size());
    const program::OpRange& ops = on ? head_.next : head_.first;
    if (ops.begin == ops.end) return {};
    if (on && head_.state != program::kNoValue) {
        head_made_.resize(static_cast<size_t>(rows * program_.value(head_.made).shape[1]));
        WEFT_TRY(executable_->ReadFloats(head_.made, 0, head_made_));
        WEFT_TRY(executable_->Write(head_.state, 0, std::as_bytes(std::span(head_made_))));
    }
    backend::Step view = ViewOf(step);
    view.wanted.value = head_.logits;
    return executable_->Run(ops, view, StepGroups(step));
}

Result<LogitsRow> Rank::DraftLogits(int64_t row, std::vector<float>& buffer) {
    WEFT_CHECK(head_.logits != program::kNoValue);
    if (const RowAnswer* answer = stages_ ? stages_->Find(row) : nullptr) return LogitsRow(*answer);
    const int64_t columns = program_.value(head_.logits).shape[1];
    const LogitsRow own(*executable_, head_.logits, row, columns, columns, buffer);
    if (head_tokens_.empty()) return own;
    WEFT_ASSIGN(const std::span<const float> values, own.All());
    head_row_.resize(static_cast<size_t>(hyper_.vocab), -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < head_tokens_.size(); ++i) {
        head_row_[static_cast<size_t>(head_tokens_[i])] = values[i];
    }
    return LogitsRow(head_row_);
}

bool Rank::pipelined() const {
    return cluster_.rank() == 0 && shard_.layout.pp > 1 && backend::EndsWithExchange(program_) &&
           !job_.verify && !job_.trace;
}

// Runs `ops` of a Program that EndsWithExchange.
Status Rank::RunPart(const StepData& step, const program::OpRange& ops) {
    backend::Step view = ViewOf(step);
    if (ops.begin > 0) view.copies = {};
    const int64_t begin_ns = NowNs();
    WEFT_TRY(executable_->Run(ops, view, StepGroups(step)));
    step_s_ += SecondsSince(begin_ns);
    return {};
}

Status Rank::Compute(const StepData& step) {
    WEFT_TRY(steps_.Send(step));
    WEFT_TRY(CheckStepRows(step));
    WEFT_TRY(CheckKeyed(step));
    if (!step.keyed.empty()) WEFT_TRY(pages_->Save(step.keyed));
    WEFT_TRY(RunPart(step, {0, backend::ExchangeBegin(program_)}));
    Record(step);
    return {};
}

Status Rank::Hand(const StepData& step) {
    return RunPart(step, {backend::ExchangeBegin(program_), program_.ops.size() - 1});
}

Status Rank::Collect(const StepData& step) {
    return RunPart(step, {program_.ops.size() - 1, program_.ops.size()});
}

namespace {

bool SlotsFit(const StepData::Sequence& s, int64_t slots) {
    const auto is_slot = [&](int32_t slot) { return slot >= 0 && slot < slots; };
    bool good = (s.state_from == -1 || is_slot(s.state_from)) && is_slot(s.state_to);
    int64_t least = s.row_begin;
    for (const auto& [row, slot] : s.state_writes) {
        good = good && row >= least && row < int64_t{s.row_begin} + s.row_count && is_slot(slot);
        least = row;
    }
    return good;
}

}  // namespace

// Steps arrive over the wire: this checks what the backend assumes.
Status Rank::CheckStepRows(const StepData& step) const {
    const auto tokens = static_cast<int64_t>(step.tokens.size());
    const auto adapters = static_cast<int64_t>(job_.adapters.size());
    const auto outputs = static_cast<int64_t>(step.output_rows.size());
    const auto is_page = [&](int32_t page) { return page >= 0 && page < kv_pages_; };
    bool good = tokens > 0 && tokens <= job_.step_rows() &&
                outputs <= std::min(job_.max_outputs, job_.chunk);
    for (int32_t row : step.output_rows) good = good && row >= 0 && row < tokens;
    for (const StepData::Sequence& s : step.sequences) {
        const int64_t end = int64_t{s.position} + s.row_count;
        good = good && s.adapter >= 0 && s.adapter <= adapters;
        good = good && s.row_begin >= 0 && s.row_count >= 0 && s.position >= 0 &&
               s.row_begin + int64_t{s.row_count} <= tokens &&
               end <= static_cast<int64_t>(s.pages.size()) * page_tokens();
        for (int32_t page : s.pages) good = good && is_page(page);
        good = good && (!hyper_.has_state() || SlotsFit(s, job_.state_slots));
    }
    good = good && (step.asks.empty() || step.asks.size() == step.output_rows.size());
    for (const RowRequest& ask : step.asks) good = good && ask.top <= hyper_.vocab;
    for (const auto& [from, to] : step.copies) good = good && is_page(from) && is_page(to);
    if (good) return {};
    return MakeError(ErrorCode::kCorrupt,
                     "step {} from rank 0 does not fit the buffers of rank {}: {} rows (expected 1 "
                     "to {}), {} rows of logits (at most {}), {} sequences in a KV cache of {} "
                     "pages. Run the same build of Weft on all hosts; if it is the same, this is a "
                     "bug of Weft: report this line",
                     step.number, cluster_.rank(), tokens, job_.step_rows(), outputs,
                     std::min(job_.max_outputs, job_.chunk), step.sequences.size(), kv_pages_);
}

Status Rank::ReadLogits(int64_t rows, std::vector<float>& out) {
    WEFT_CHECK(logits_ != program::kNoValue);
    out.resize(static_cast<size_t>(rows * hyper_.vocab));
    return executable_->ReadFloats(logits_, 0, out);
}

LogitsRow Rank::Logits(int64_t row, std::vector<float>& buffer, int64_t columns) {
    WEFT_CHECK(logits_ != program::kNoValue);
    if (const RowAnswer* answer = stages_ ? stages_->Find(row) : nullptr) return *answer;
    return {*executable_, logits_, row, hyper_.vocab, columns < 0 ? hyper_.vocab : columns, buffer};
}

Status Rank::ReadHidden(int64_t first_row, int64_t rows, std::vector<float>& out) {
    WEFT_CHECK(has_hidden());
    out.resize(static_cast<size_t>(rows * hyper_.hidden));
    return executable_->ReadFloats(hidden_, first_row * hyper_.hidden, out);
}

int Rank::all_reduces() const {
    const auto ops = std::span(program_.ops).first(head_.step.end);
    return static_cast<int>(std::ranges::count_if(
        ops, [](const program::Op& op) { return op.Is(program::Trait::kAllReduce); }));
}

void Rank::Record(const StepData& step) {
    // Only decode steps count: their small all-reduces determine the time of a token.
    if (step.tokens.size() == step.sequences.size()) {
        for (float us : executable_->transfers().all_reduce_us()) {
            all_reduce_us_.Add(us);
        }
    }
    if (!job_.trace || trace_.size() >= kMostTraceBytes) return;
    const auto timings = executable_->timings();
    traced_.push_back({step.number, {timings.begin(), timings.end()}});
    traced_ops_ += timings.size();
    if (traced_ops_ > kMostTracedOps) WriteTraced();
}

// Converts timings to text. Delayed, because it takes longer than a small op.
void Rank::WriteTraced() {
    for (const TracedStep& step : traced_) {
        AppendTrace(program_, step.number, step.timings, cluster_.rank(), trace_);
    }
    traced_.clear();
    traced_ops_ = 0;
}

// All tensor ranks must have the same bits of replicated values: the logits, or the values for the
// next stage. Compares checksums over the control plane; for tests, not for speed.
Status Rank::VerifyReplicas() {
    const std::string mine = fmt::format("{:016x}", executable_->transfers().checksum());
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("checksum", mine, Deadline::In(cluster_.timeout_ms())));
    for (int t = 0; t < shard_.layout.tp; ++t) {
        const int other = shard_.stage * shard_.layout.tp + t;
        if (all[static_cast<size_t>(other)] == mine) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "replicated state differs between rank {} ({}) and rank {} ({}): the "
                         "tensor ranks no longer hold the same bits",
                         cluster_.rank(), mine, other, all[static_cast<size_t>(other)]);
    }
    return {};
}

RankReport Rank::Report() const {
    RankReport report;
    const backend::MemoryUse use = executable_->memory();
    report.rank = cluster_.rank();
    report.host = cluster_.host(cluster_.rank()).name;
    report.device = device_->info().name;
    report.hardware = device_->info().hardware;
    report.stage = shard_.stage;
    report.tensor_rank = shard_.tensor_rank;
    report.share = ShareText();
    if (shard_.layout.tp > 1) report.wire = SumWireName(wire_);
    if (shard_.layout.tp > 1) report.prompt_wire = SumWireName(prompt_wire_);
    report.step_s = step_s_;
    report.wait_s = executable_->transfers().waited_s();
    report.energy_uj = ProcessorEnergyUj();
    if (power_ != nullptr) {
        for (const PowerReading& reading : power_->Read()) {
            report.sensors.push_back(reading.sensor);
            report.sensor_joules.push_back(reading.joules);
        }
        report.power_note = power_->note();
    }
    report.rss_bytes = ResidentBytes();
    report.weight_bytes = use.weight_bytes;
    report.kv_bytes = use.kv_bytes;
    const bool fed = IsFed() && cluster_.rank() != 0;
    report.read_bytes = fed ? 0 : read_bytes_.load() + fed_bytes_.load();
    report.received_bytes = fed ? read_bytes_.load() : 0;
    const backend::DriveUse drive = executable_->drive_use();
    report.drive_hits = drive.hits;
    report.drive_misses = drive.misses;
    report.drive_bytes = drive.read_bytes;
    report.drive_s = drive.read_s;
    report.drive_wait_s = drive.wait_s;
    report.drive_ahead = drive.ahead;
    report.drive_ahead_used = drive.ahead_used;
    report.load_s = load_s_;
    report.all_reduces = all_reduces();
    report.all_reduce_us = all_reduce_us_.Quantiles(kQuantiles);
    return report;
}

std::string Rank::ShareText() const {
    std::string text = fmt::format("layers {} to {}", shard_.layers.begin, shard_.layers.end - 1);
    if (shard_.layout.tp == 1) return text;
    text += fmt::format(", {} of {} heads", shard_.heads.size(), hyper_.heads);
    if (shard_.ffn.size() > 0) {
        text += fmt::format(", {} MLP columns", shard_.ffn.size());
    }
    if (shard_.experts.size() > 0) text += fmt::format(", {} experts", shard_.experts.size());
    return text;
}

Deadline Rank::WaitForRanks(int64_t least_ms) const {
    return Deadline::In(std::max(least_ms, cluster_.timeout_ms()));
}

// If a report fails, only the report is lost: the job continues.
Result<std::vector<RankReport>> Rank::ExchangeReports() {
    auto texts = cluster_.AllGather("report", ReportToJson(Report()), WaitForRanks(kLeastReportMs));
    if (!texts.ok() && texts.error().code != ErrorCode::kUnsupported) return texts.error();
    std::vector<RankReport> reports(static_cast<size_t>(cluster_.size()));
    Status failed = texts.ok() ? Status() : Status(texts.error());
    for (size_t rank = 0; rank < reports.size(); ++rank) {
        reports[rank].rank = static_cast<int>(rank);
        reports[rank].host = cluster_.host(static_cast<int>(rank)).name;
        if (!texts.ok()) continue;
        auto report = ReportFromJson((*texts)[rank]);
        if (report.ok()) {
            reports[rank] = *std::move(report);
        } else if (failed.ok()) {
            failed = report.error();
        }
    }
    if (!failed.ok() && cluster_.rank() == 0) {
        Log(LogLevel::kWarning, "some ranks have no report: {}", failed.error().message);
    }
    return reports;
}

Result<std::vector<RankReport>> Rank::Survey(int64_t step_number) {
    if (cluster_.size() == 1) return std::vector<RankReport>{Report()};
    StepData step;
    step.kind = StepKind::kReport;
    step.number = step_number;
    WEFT_TRY(steps_.Send(step));
    return ExchangeReports();
}

Result<std::vector<RankReport>> Rank::GatherReports() {
    CheckTable();
    WEFT_ASSIGN(std::vector<RankReport> reports, ExchangeReports());
    if (job_.trace) WEFT_TRY(GatherTraces(reports));
    return reports;
}

// Every rank sends a piece of its trace in each call.
Status Rank::GatherTraces(std::vector<RankReport>& reports) {
    WriteTraced();
    WEFT_ASSIGN(const std::vector<std::string> sizes,
                cluster_.AllGather("trace size", std::to_string(trace_.size()),
                                   WaitForRanks(kLeastReportMs)));
    size_t most = 0;
    for (const std::string& size : sizes) {
        most = std::max<size_t>(most, std::strtoull(size.c_str(), nullptr, 10));
    }
    const size_t piece = kTraceRoundBytes / reports.size();
    for (size_t at = 0; at < most; at += piece) {
        const std::string mine = at < trace_.size() ? trace_.substr(at, piece) : "";
        WEFT_ASSIGN(const std::vector<std::string> pieces,
                    cluster_.AllGather("trace", mine, WaitForRanks(kLeastReportMs)));
        for (size_t rank = 0; rank < reports.size(); ++rank) reports[rank].trace += pieces[rank];
    }
    return {};
}

Status RunWorker(Rank& rank) {
    StepData step;
    for (;;) {
        WEFT_TRY(rank.Receive(step));
        switch (step.kind) {
            case StepKind::kStop: return {};
            case StepKind::kRun:
            case StepKind::kGuess:
            case StepKind::kGuessOn: WEFT_TRY(rank.Run(step)); break;
            case StepKind::kReport: WEFT_TRY(rank.ExchangeReports()); break;
            case StepKind::kSave:
            case StepKind::kRestore: WEFT_TRY(rank.RunKeyed(step)); break;
            case StepKind::kSaveSlot:
            case StepKind::kLoadSlot: WEFT_TRY(rank.RunSlot(step, {})); break;
        }
    }
}

}  // namespace weft::engine
