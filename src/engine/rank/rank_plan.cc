// Chooses a rank's device (as named, or the choice of `auto`) and compiles its program. Also has
// the checks that all ranks make together before any weight is read.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <span>
#include <sstream>

#include "backend/device_list.h"
#include "backend/transfer.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "cluster/worker/memory_check.h"
#include "engine/rank/cache_size.h"
#include "engine/rank/device_options.h"
#include "engine/rank/host_ops.h"
#include "engine/rank/rank.h"
#include "engine/rank/rank_options.h"
#include "engine/rank/shares.h"
#include "engine/rank/sum_wire.h"
#include "engine/start/layout_choice.h"
#include "model/adapters.h"
#include "model/rope_notes.h"
#include "model_files/draft_source.h"
#include "model_files/lora/adapted_source.h"

namespace weft::engine {
namespace {

constexpr int64_t kPlacesMs = 600'000;  // as loading, which waits for the slowest disk
constexpr size_t kDigits = 16;          // of a hash that ranks compare

// Errors that another device would not avoid.
bool IsOfUser(const Error& error) {
    return error.code == ErrorCode::kUsage || error.code == ErrorCode::kCancelled;
}

std::string HashOf(const std::string& text) {
    return Hex(Sha256(std::as_bytes(std::span(text)))).substr(0, kDigits);
}

// All members of a shard, which must be named here (a new member does not compile).
std::string TextOf(const model::Shard& shard) {
    const auto& [rank, stage, tensor_rank, layout, layers, heads, kv_heads, ffn, vocab, windowed,
                 layer_ffn, experts, expert_ffn, shared_ffn, recurrent_heads, recurrent_keys,
                 vocab_parts, replicated] = shard;
    const auto& [tp, pp, tp_shares, pp_shares, ep, whole_blocks] = layout;
    std::string text =
        fmt::format("{} {} {} {} {} {} {} {} [{}] {}", rank, stage, tensor_rank, tp, pp, ep,
                    whole_blocks, replicated, fmt::join(vocab_parts, " "), layer_ffn.size());
    const auto add = [&](const model::Span& span) {
        text += fmt::format(" {}-{}", span.begin, span.end);
    };
    for (const model::Span& span : layer_ffn) add(span);
    for (const model::Span& span : {layers, heads, kv_heads, ffn, vocab, windowed, experts,
                                    expert_ffn, shared_ffn, recurrent_heads, recurrent_keys}) {
        add(span);
    }
    return text;
}

int RanksOfHost(const cluster::Cluster& cluster) {
    int ranks = 0;
    for (int rank = 0; rank < cluster.size(); ++rank) {
        ranks += cluster.host(rank).boot_id == cluster.host(cluster.rank()).boot_id ? 1 : 0;
    }
    return ranks;
}

backend::DeviceOptions OptionsOf(const Job& job, const cluster::Cluster& cluster) {
    auto options = DeviceOptionsOf(cluster, job.threads, job.reference, job.exact);
    options.local_rank = LocalRankOf(cluster, job.device);
    return options;
}

// States how devices with these identities give the same bits.
const char* EqualDevices(std::string_view identity, std::string_view other) {
    return identity.starts_with("cpu-") && other.starts_with("cpu-")
               ? "set WEFT_CPU on the better one"
               : "use devices of one kind and driver for both (--device)";
}

std::string Who(const cluster::Cluster& cluster, size_t rank) {
    const std::string& host = cluster.host(static_cast<int>(rank)).name;
    return host.empty() ? fmt::format("rank {}", rank)
                        : fmt::format("rank {} (host {})", rank, host);
}

// A further sentence if a rank computes far slower than another one, which all-reduces wait for.
std::string SlowText(const cluster::Cluster& cluster, const coll::SeriesUs& series) {
    if (!(series.slowest_us > 1.5 * series.fastest_us)) return "";
    return fmt::format(
        ". {} computes slowest: {:.0f} us between two all-reduces, and the fastest rank {:.0f} us",
        Who(cluster, static_cast<size_t>(series.slowest)), series.slowest_us, series.fastest_us);
}

// A further sentence for a jittery network; "": it is not.
std::string JitterText(const LayoutCosts& costs, double typical_us) {
    const double mean_us = typical_us + costs.tail_s * 1e6;
    if (mean_us < 1.5 * typical_us) return "";
    return fmt::format(
        ". The network is jittery: an all-reduce takes {:.0f} us at the median and {:.0f} us on "
        "average in decode steps",
        typical_us, mean_us);
}

}  // namespace

Status Rank::Plan() {
    WEFT_TRY(OpenSource());
    if (MayLackLinks(job_, cluster_)) WEFT_TRY(UseStagesIfApart());
    if (ChoosesLayout(job_, cluster_)) WEFT_TRY(ChooseLayout());
    if (job_.split_auto && cluster_.size() > 1) WEFT_TRY(ChooseShares());
    WEFT_TRY(PlanShard());
    // One rank per host reads the host's power.
    if (job_.power && power_ == nullptr && LocalRankOf(cluster_, "") == 0) {
        power_ = std::make_unique<PowerMeter>();
    }
    if (device_ != nullptr) return Compile();
    const int rank = cluster_.rank(), ranks = cluster_.size();
    WEFT_ASSIGN(const std::string name, backend::DeviceOfRank(job_.device, rank, ranks));
    if (name != backend::kAutoDevice) return CompileOn(name);
    auto options = OptionsOf(job_, cluster_);
    const backend::AutoChoice choice = backend::ChooseAuto(options);
    if (!choice.left_out.empty()) {
        Log(LogLevel::kWarning, "--device auto skips {}", choice.left_out);
    }
    for (const std::string& one : choice.names) {
        Status compiled = CompileOn(one);
        if (MayShareExperts(compiled)) compiled = CompileOn(one, Experts::kShared);
        const bool last = one == choice.names.back();
        if (compiled.ok() || last || IsOfUser(compiled.error())) {
            may_move_ = !last;
            return compiled;
        }
        Log(LogLevel::kWarning, "--device auto does not use {}: {}", one, compiled.error().message);
    }
    return {};
}

// Whether the GPU that `auto` tried lacks memory, or a buffer of the experts' size, that the host's
// processor could replace by computing experts. A GPU that shares the host's memory would gain
// nothing.
bool Rank::MayShareExperts(const Status& compiled) const {
    if (compiled.ok()) return false;
    const ErrorCode code = compiled.error().code;
    return (code == ErrorCode::kOutOfMemory || code == ErrorCode::kUnsupported) &&
           job_.experts.empty() && hyper_.moe.experts > 0 && device_ != nullptr &&
           device_->pool().kind == backend::MemoryKind::kDevice;
}

// Opens a device and compiles the program for it.
Status Rank::CompileOn(const std::string& name, Experts experts) {
    auto options = OptionsOf(job_, cluster_);
    DropExecutable();
    device_.reset();
    WEFT_ASSIGN(options.host_ops, HostOpsOf(job_, hyper_));
    options.host_ops.fill = options.host_ops.fill || experts == Experts::kShared;
    WEFT_ASSIGN(device_, backend::OpenDevice(name, options));
    host_ops_ = options.host_ops;
    SetCache(0);  // until the ranks agree
    if (job_.weights_on_drive && job_.experts.empty() && name != backend::kDefaultDevice) {
        Log(LogLevel::kInfo,
            "{}: --weights-on-drive, so the processor computes the experts of all layers",
            device_->info().name);
    }
    return Compile();
}

void Rank::DropExecutable() {
    cluster_.SetProgress(nullptr);  // it would read objects that are going away
    running_.store(nullptr, std::memory_order_release);
    executable_.reset();
    is_loaded_.clear();
    entered_ = warm_ = false;
}

// Sets the sizes of the KV cache that `tokens` tokens allow.
void Rank::SetCache(int64_t tokens) {
    job_.ctx = largest_.ctx;
    job_.kv_tokens = largest_.kv_tokens;
    FitCache(job_, hyper_, page_tokens(), tokens);
}

void Rank::TakeCache(const Job& job) {
    largest_.ctx = job.ctx;
    largest_.kv_tokens = job.kv_tokens;
    job_.fits_ctx = job.fits_ctx;
}

// Leaves the GPU that `auto` chose.
Status Rank::MoveToCpu(const std::string& why) {
    Log(LogLevel::kWarning, "--device auto changes from {} to the CPU: {}", device_->info().name,
        why);
    may_move_ = false;
    return CompileOn("cpu");
}

Status Rank::OpenSource() {
    if (source_ == nullptr) {
        WEFT_ASSIGN(source_, OpenModelOf(job_));
    }
    WEFT_ASSIGN(hyper_, model::ReadHyper(*source_));
    return {};
}

// All ranks measure at the same time. piece_bytes, then: as in SpeedTrial.
Result<Rank::Speeds> Rank::MeasureSpeeds(double piece_bytes, const AfterSpeed& then) {
    const int rank = cluster_.rank(), ranks = cluster_.size();
    WEFT_ASSIGN(const std::string name, backend::DeviceOfRank(job_.device, rank, ranks));
    auto options = OptionsOf(job_, cluster_);
    WEFT_ASSIGN(const auto device, backend::OpenDevice(name, options));
    const auto ready = [&] { return cluster_.Barrier("speed", Deadline::In(kPlacesMs)); };
    WEFT_ASSIGN(const RankSpeed speed,
                MeasureSpeed(*device, MeasuredType(source_->MainType()),
                             {.ready = ready, .piece_bytes = piece_bytes, .then = then}));
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("speed",
                                   fmt::format("{:.0f} {} {}", speed.bytes_per_s, speed.space_bytes,
                                               device->info().name),
                                   Deadline::In(kPlacesMs)));
    Speeds speeds;
    for (const std::string& one : all) {
        char* end = nullptr;
        RankSpeed& its = speeds.ranks.emplace_back();
        its.bytes_per_s = std::strtod(one.c_str(), &end);
        its.space_bytes = std::strtoull(end, &end, 10);
        speeds.text += fmt::format("{}rank {} ({}) {:.1f} GB/s", speeds.text.empty() ? "" : ", ",
                                   speeds.ranks.size() - 1, *end == ' ' ? end + 1 : "?",
                                   its.bytes_per_s * 1e-9);
    }
    return speeds;
}

// If two ranks have no data link, an open layout becomes a pipeline.
Status Rank::UseStagesIfApart() {
    if (cluster_.fabric().links.empty()) return {};  // a host that may join
    std::vector<int> everyone(static_cast<size_t>(cluster_.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    WEFT_ASSIGN(const auto missing,
                cluster_.AllGather("missing link", MissingLink(everyone), Deadline::In(kPlacesMs)));
    const auto apart =
        std::ranges::find_if(missing, [](const std::string& pair) { return !pair.empty(); });
    if (apart == missing.end()) return {};
    UseStages(*apart + " have no data link, which tensor ranks need");
    return {};
}

// The layout stays in later epochs.
void Rank::UseStages(const std::string& why) {
    job_.tp = 1;
    job_.pp = cluster_.size();
    if (cluster_.rank() == 0) Log(LogLevel::kInfo, "layout: --pp {}, because {}", job_.pp, why);
}

// The device that Plan is going to open.
Result<backend::DeviceInfo> Rank::DescribeDevice() const {
    if (device_ != nullptr) return device_->info();
    WEFT_ASSIGN(const std::string name,
                backend::DeviceOfRank(job_.device, cluster_.rank(), cluster_.size()));
    auto options = OptionsOf(job_, cluster_);
    WEFT_ASSIGN(options.host_ops, HostOpsOf(job_, hyper_));
    return backend::DescribeDevice(name, options);
}

// Tensor ranks need devices that give the same bits. Ranks that lack them become stages, if the
// model has enough layers. (A device that cannot be described fails when Plan opens it.)
Status Rank::ChooseLayout() {
    const auto info = DescribeDevice();
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("device of the layout", info.ok() ? info->identity : "",
                                   Deadline::In(kPlacesMs)));
    const auto other =
        std::ranges::find_if(all, [&](const std::string& one) { return one != all[0]; });
    const bool known = std::ranges::count(all, "") == 0;
    if (known && other != all.end() && std::cmp_less_equal(cluster_.size(), hyper_.layers)) {
        const auto rank = static_cast<size_t>(other - all.begin());
        UseStages(fmt::format(
            "{}: tensor ranks need devices that give the same bits. For --tp {}, "
            "{}",
            UnlikeText(0, rank, all), cluster_.size(), EqualDevices(all[0], all[rank])));
        return {};
    }
    const bool measures = MeasuresLayouts(job_, cluster_);
    job_.tp = cluster_.size();
    job_.pp = 1;
    return measures && known ? MeasureLayouts(*info) : Status();
}

// Tensor ranks or stages: the layout that rank 0 estimates as faster for a whole answer. It stays
// in later epochs.
Status Rank::MeasureLayouts(const backend::DeviceInfo& info) {
    const int ranks = cluster_.size();
    std::vector<int> everyone(static_cast<size_t>(ranks));
    std::iota(everyone.begin(), everyone.end(), 0);
    WEFT_TRY(JoinTensor(everyone));
    const coll::Tuning& tuning = tensor_->tuning();
    if (!(coll::PredictedUs(tuning, 1) > 0)) return {};  // not measured
    LayoutCosts costs = CostsOf(job_, hyper_, *source_);
    costs.ranks = ranks;
    SumWires wires = AutoSumWires(info, true, tuning);
    if (job_.wire != backend::SumWire::kAuto) wires = {job_.wire, job_.wire};
    if (job_.prompt_wire != backend::SumWire::kAuto) wires.prompts = job_.prompt_wire;
    const DType sums = info.target.float64_reductions ? DType::kF64 : DType::kF32;
    costs.sum_bytes = backend::SumBytes(wires.all, sums, hyper_.hidden);
    costs.prompt_sum_bytes = backend::SumBytes(wires.prompts, sums, hyper_.hidden);
    coll::SeriesUs series;
    const auto measure_sums = [&](const std::function<Status()>& compute) -> Status {
        WEFT_ASSIGN(series,
                    coll::MeasureSeries(*tensor_, {.bytes = static_cast<size_t>(costs.sum_bytes),
                                                   .compute = compute,
                                                   .monitor = cluster_.monitor()}));
        costs.SetTail(series, tuning);
        return {};
    };
    WEFT_ASSIGN(const Speeds speeds, MeasureSpeeds(costs.piece_bytes(), measure_sums));
    costs.bytes_per_s =
        std::ranges::min_element(speeds.ranks, {}, &RankSpeed::bytes_per_s)->bytes_per_s;
    const LayoutSeconds seconds = EstimateLayouts(costs, tuning);
    const double sum_us = coll::PredictedUs(tuning, static_cast<size_t>(costs.sum_bytes));
    const bool wins = seconds.stages_win() && ranks <= hyper_.layers;
    WEFT_ASSIGN(const std::vector<std::string> words,
                cluster_.AllGather("layout", wins ? "stages" : "tensor", Deadline::In(kPlacesMs)));
    const bool stages = words[0] == "stages";
    if (stages) {
        std::swap(job_.tp, job_.pp);
        tensor_.reset();
        table_ = {};
    }
    if (cluster_.rank() == 0 && seconds.tensor > 0) {
        Log(LogLevel::kInfo,
            "layout: --{} {}. A prompt of {} tokens and {} tokens of answer take an estimated "
            "{:.3g} s over this network, and {:.3g} s with --{} {} (both without the prompt's "
            "arithmetic){}{}",
            stages ? "pp" : "tp", ranks, costs.prompt, costs.answer,
            stages ? seconds.stages : seconds.tensor, stages ? seconds.tensor : seconds.stages,
            stages ? "tp" : "pp", ranks, JitterText(costs, sum_us), SlowText(cluster_, series));
    }
    return {};
}

// Shares by each device's read speed: all ranks compute the same shares, which stay in later
// epochs.
Status Rank::ChooseShares() {
    WEFT_ASSIGN(const model::Layout layout,
                model::MakeLayout(cluster_.size(), job_.tp, job_.pp, {}, job_.ep));
    WEFT_ASSIGN(const Speeds speeds, MeasureSpeeds());
    job_.split = SharesBySpeed(speeds.ranks, layout, source_->TotalBytes());
    job_.split_auto = false;
    if (cluster_.rank() == 0) {
        Log(LogLevel::kInfo, "--tensor-split auto: weights are read at {}: {}", speeds.text,
            job_.split.empty() ? "even shares"
                               : fmt::format("shares {}", fmt::join(job_.split, ",")));
    }
    return {};
}

Status Rank::PlanShard() {
    WEFT_ASSIGN(const model::Layout layout,
                model::MakeLayout(cluster_.size(), job_.tp, job_.pp, job_.split, job_.ep));
    WEFT_ASSIGN(const model::ShardPlan plan, model::PlanShards(hyper_, *source_, layout));
    shard_ = plan.shards[static_cast<size_t>(cluster_.rank())];
    place_ = PlaceOf(job_, plan);
    one_host_ = cluster_.fabric().transport == "shm";
    if (cluster_.rank() == 0) {
        for (const std::string& note : model::RopeNotes(*source_, hyper_)) {
            Log(LogLevel::kWarning, "{}", note);
        }
        for (const std::string& note : plan.notes) Log(LogLevel::kInfo, "{}", note);
    }
    return CheckKvTypes(hyper_, KvTypesOf(job_), source_->name());
}

Rank::Place Rank::PlaceOf(const Job& job, const model::ShardPlan& plan) const {
    const int rank = cluster_.rank(), ranks = cluster_.size();
    Place place;
    place.shard = TextOf(plan.shards[static_cast<size_t>(rank)]);
    std::string all;
    for (const model::Shard& shard : plan.shards) all += TextOf(shard) + "\n";
    place.shards = HashOf(all);
    const auto device = backend::DeviceOfRank(job.device, rank, ranks);
    if (device.ok()) place.device = *device;
    place.local_rank = LocalRankOf(cluster_, job.device);
    place.ranks_here = job.weights_on_drive ? RanksOfHost(cluster_) : 0;
    place.cores = cluster_.cores();
    place.cores_shared = cluster_.cores_shared();
    return place;
}

bool Rank::Serves(const Job& job) const {
    const auto layout = model::MakeLayout(cluster_.size(), job.tp, job.pp, job.split, job.ep);
    if (!layout.ok()) return false;
    const auto plan = model::PlanShards(hyper_, *source_, *layout);
    return plan.ok() && PlaceOf(job, *plan) == place_;
}

// A rank that kept its weights and one that is new must run the same program. Job fields that ranks
// may have in another form (paths, devices, wire types) do not matter here.
Status Rank::AgreeOnLayout() {
    const Job& j = job_;
    // Ranks of different epochs may have chosen different sizes; AgreeOnCache unites them.
    const bool sized = j.cache_share == 0;
    const std::string options = fmt::format(
        "{} {} {} {} {} {} {} {} {} {} {} {} {} {}", sized ? j.ctx : 0, sized ? j.kv_tokens : 0,
        j.state_slots, j.chunk, j.max_outputs, KvTypesOf(j).Name(), static_cast<int>(j.outputs),
        j.draft_head, !j.draft_folder.empty(), j.reference, j.exact, OverlapName(j.overlap),
        DeviceSumName(j.device_sum), j.adapters.size());
    const std::string mine = fmt::format("--tp {} --pp {}, shards {}, options {}", shard_.layout.tp,
                                         shard_.layout.pp, place_.shards, options);
    return cluster_.Agree("layout", mine, Deadline::In(kPlacesMs));
}

// Whether `mine` is true on all tensor ranks of this stage.
Result<bool> Rank::IsOfAllTensorRanks(std::string_view what, bool mine) {
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather(std::string(what), mine ? "1" : "0", Deadline::In(kPlacesMs)));
    const auto tp = static_cast<size_t>(shard_.layout.tp);
    const auto group = std::span(all).subspan(static_cast<size_t>(shard_.stage) * tp, tp);
    return std::ranges::count(group, "0") == 0;
}

// All tensor ranks of a stage must overlap transfers with computation, or none of them.
Status Rank::AgreeOnHost() {
    if (shard_.layout.tp == 1) return {};
    WEFT_ASSIGN(const bool one_host,
                IsOfAllTensorRanks("one host", cluster_.fabric().transport == "shm"));
    return std::exchange(one_host_, one_host) == one_host ? Status() : Compile();
}

// With --experts auto, a rank whose processor computes experts beside its GPU runs whole steps,
// while a rank with more memory could run them in parts, with other all-reduces.
Status Rank::AgreeOnParts() {
    if (shard_.layout.tp == 1) return {};
    WEFT_ASSIGN(parts_, IsOfAllTensorRanks("steps in parts", executable_->HasParts()));
    return {};
}

Status Rank::Compile() {
    const model::Layout& layout = shard_.layout;
    if (layout.tp > 1) {
        WEFT_TRY(CheckSumWire(job_.wire, device_->info()));
        WEFT_TRY(CheckSumWire(job_.prompt_wire, device_->info(), "--prompt-allreduce-dtype"));
        WEFT_TRY(CheckDeviceSum(job_.device_sum, device_->info()));
    }
    const backend::DeviceInfo& info = device_->info();
    const auto build = BuildOptionsOf(job_, layout, info.target);
    WriteTraced();  // of the old program
    DropExecutable();
    WEFT_ASSIGN(program_, model::BuildProgram(hyper_, shard_, *source_, build));
    WEFT_TRY(model::AddAdapters(program_, *source_));
    first_tokens_.assign(job_.adapters.size() + 1, 0);
    for (size_t i = 1; i < first_tokens_.size(); ++i) {
        first_tokens_[i] = model_files::FirstTokenOf(*source_, static_cast<int32_t>(i));
    }
    if (std::ranges::max(first_tokens_) == 0) first_tokens_.clear();
    logits_ = program_.Find("logits");
    hidden_ = program_.Find("hidden");
    head_ = model::DraftHeadOf(program_);
    WEFT_TRY(ReadDraftTokens());

    auto compile = CompileOptionsOf(job_, layout, program_, info.target, one_host_);
    kv_pages_ = compile.kv_pages;
    if (job_.weights_on_drive) {
        WEFT_ASSIGN(compile.drive_memory, DriveMemory());
        compile.drive_file = source_->name();
    }
    WEFT_ASSIGN(executable_, device_->Compile({program_}, compile));
    running_.store(executable_.get(), std::memory_order_release);
    ReportProgress();
    executable_->SetTracing(job_.trace);
    executable_->transfers().SetChecking(job_.verify);
    return {};
}

Status Rank::ReadDraftTokens() {
    if (cluster_.rank() != 0 || hyper_.head.empty()) return {};
    const model_files::DraftHeadSource head(*source_);
    const model_files::TensorInfo* tokens = head.FindTensor("d2t.weight");
    if (tokens == nullptr) return {};
    const int64_t drafts = hyper_.head.front().vocab;
    const auto bad = [&](const std::string& what) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: the draft head's table of tokens, d2t, {}. Download the head again",
                         source_->name(), what);
    };
    if (tokens->dtype != DType::kI32 || tokens->rows != 1 || tokens->cols != drafts) {
        return bad(fmt::format("is {} x {} of {}; expected 1 x {} of {}", tokens->rows,
                               tokens->cols, Info(tokens->dtype).name, drafts,
                               Info(DType::kI32).name));
    }
    head_tokens_.resize(static_cast<size_t>(tokens->cols));
    WEFT_TRY(head.ReadRows(*tokens, 0, 1, 0, tokens->cols,
                           std::as_writable_bytes(std::span(head_tokens_)), nullptr));
    for (const int32_t token : head_tokens_) {
        if (token >= 0 && token < hyper_.vocab) continue;
        return bad(fmt::format("has token {}; the vocabulary has {}", token, hyper_.vocab));
    }
    return {};
}

// Memory of a rank with experts on the drive.
Result<uint64_t> Rank::DriveMemory() const {
    if (hyper_.moe.experts == 0) {
        return MakeError(ErrorCode::kUsage,
                         "--weights-on-drive leaves experts on the drive, and the model has none");
    }
    if (device_->info().name != backend::kDefaultDevice && !HostOpsOf(job_, hyper_)->any()) {
        return MakeError(ErrorCode::kUsage,
                         "--weights-on-drive is for experts that the processor computes: leave out "
                         "--experts {}, or use --device cpu",
                         job_.experts);
    }
    const auto given = static_cast<uint64_t>(job_.memory);
    if (given > kRankBytes) return given - kRankBytes;
    if (given > 0) {
        return MakeError(ErrorCode::kOutOfMemory,
                         "--memory: {} of memory are too few, because a rank's process takes {} "
                         "besides weights",
                         BytesText(given), BytesText(kRankBytes));
    }
    WEFT_ASSIGN(const backend::MemoryPool pool, backend::DescribePool(backend::kDefaultDevice));
    return pool.free_bytes / 10 * 9 / static_cast<uint64_t>(RanksOfHost(cluster_));
}

// Ranks that chose their devices may find that these do not match, or that a memory is too small
// for several of them; they then move to CPUs. All ranks reach the same decision.
Status Rank::CheckPlaces() {
    bool may_move = false;
    if (backend::HasAuto(job_.device)) {
        const std::string mine =
            fmt::format("{}{}", may_move_ ? '+' : '-', device_->info().identity);
        WEFT_ASSIGN(const std::vector<std::string> all,
                    cluster_.AllGather("device choice", mine, Deadline::In(kPlacesMs)));
        const auto tp = static_cast<size_t>(shard_.layout.tp);
        const size_t begin = static_cast<size_t>(cluster_.rank()) / tp * tp;
        const auto group = std::span(all).subspan(begin, tp);
        const bool unlike = std::ranges::any_of(group, [&](const std::string& one) {
            return std::string_view(one).substr(1) != device_->info().identity;
        });
        if (unlike && may_move_) {
            WEFT_TRY(MoveToCpu(
                "not all tensor ranks have a GPU of its kind (--pp works over unlike devices)"));
        }
        may_move = std::ranges::any_of(all, [](const std::string& one) { return one[0] == '+'; });
    }
    if (job_.self_test) WEFT_TRY(CheckDevices());
    WEFT_TRY(AgreeOnCache());
    const Status fits = CheckMemory();
    if (fits.ok() || !may_move || fits.error().code != ErrorCode::kOutOfMemory) return fits;
    if (may_move_) WEFT_TRY(MoveToCpu(fits.error().message));
    if (job_.self_test) WEFT_TRY(CheckDevices());
    WEFT_TRY(AgreeOnCache());
    return CheckMemory();
}

// Tensor ranks need the same bits of replicated values, so their devices must compute alike.
Status Rank::CheckDevices() {
    const std::string& mine = device_->info().identity;
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("device", mine, Deadline::In(kPlacesMs)));
    const auto tp = static_cast<size_t>(shard_.layout.tp);
    for (size_t rank = 0; rank < all.size(); ++rank) {
        const size_t first = rank / tp * tp;
        if (all[rank] != all[first]) return UnlikeDevices(first, rank, all);
    }
    identities_ = all;
    return {};
}

std::string Rank::UnlikeText(size_t rank, size_t other, const std::vector<std::string>& all) const {
    return fmt::format("{} computes on {}, {} on {}", Who(cluster_, rank), all[rank],
                       Who(cluster_, other), all[other]);
}

Error Rank::UnlikeDevices(size_t rank, size_t other, const std::vector<std::string>& all) const {
    return MakeError(ErrorCode::kUsage,
                     "{}: tensor ranks need devices that give the same bits. Use --pp between "
                     "these ranks, or {}",
                     UnlikeText(rank, other, all), EqualDevices(all[rank], all[other]));
}

// Compares this rank, which may join, with its tensor group or, if the job's ranks have always been
// alike, with any rank, because answers in progress move to the new stages.
Status Rank::CheckAlone(const std::vector<std::string>& identities, uint64_t freed_bytes) {
    const auto tp = static_cast<size_t>(shard_.layout.tp);
    const auto me = static_cast<size_t>(cluster_.rank());
    std::vector<std::string> all = identities;
    all.resize(std::max(all.size(), static_cast<size_t>(cluster_.size())));
    const bool alike = !job_.any_device && AreAlike(all);
    const auto in_group = [&](size_t rank) { return rank != me && rank / tp == me / tp; };
    size_t other = 0;  // the first rank whose device is unlike this one
    const auto find = [&] {
        const std::string mine = device_->info().identity;
        for (other = 0; other < all.size(); ++other) {
            const bool compared = !all[other].empty() && (alike || in_group(other));
            if (compared && all[other] != mine) return true;
        }
        return false;
    };
    if (job_.self_test && find()) {
        // (Tensor ranks move in the job, too; a stage would compute on its GPU.)
        if (may_move_ && in_group(other)) {
            WEFT_TRY(MoveToCpu("the other tensor ranks have no such GPU"));
        }
        if (find()) {
            all[me] = device_->info().identity;
            if (in_group(other)) return UnlikeDevices(other, me, all);
            return MakeError(ErrorCode::kUsage,
                             "{}: these devices do not give the same bits, so answers in progress "
                             "would change. Before the job starts, {}; --skip-self-test lets "
                             "unlike hosts join",
                             UnlikeText(other, me, all), EqualDevices(all[other], all[me]));
        }
    }
    // (If a GPU of `auto` is too small, all ranks would have to move, which a joining worker must
    // not cause.)
    return CheckMemory(freed_bytes);
}

// All bytes that this rank needs of each memory, with a KV cache of `tokens` tokens. (Flags that
// need memory belong here: the default cache leaves space for this sum, and the check compares it.)
std::vector<cluster::MemoryNeed> Rank::Needs(int64_t tokens) const {
    const backend::MemoryUse use = executable_->memory();
    const ProgramBytes bytes = BytesOf(program_, host_ops_);
    const auto more = static_cast<uint64_t>(tokens);
    const auto now = static_cast<uint64_t>(kv_pages_ * page_tokens());
    const auto with = [&](uint64_t all, uint64_t token) {
        return all - std::min(all, token * now) + token * more;
    };
    uint64_t device = with(use.weight_bytes + use.kv_bytes + use.arena_bytes - use.host_bytes,
                           bytes.device_token);
    if (cluster_.rank() == 0) {
        device += static_cast<uint64_t>(job_.draft_bytes) +
                  static_cast<uint64_t>(job_.draft_token_bytes) * more;
    }
    const uint64_t host = kRankBytes + with(use.host_bytes, bytes.host_token) +
                          static_cast<uint64_t>(job_.cache_ram) + cluster::WindowsBytes(cluster_);
    // After the first epoch, a rank already holds most of these bytes.
    return MemoryNeeds(*device_, device, host, entered_);
}

// The text by which ranks size the cache: "kept CTX TOKENS" if this rank keeps its weights and its
// cache, else a line "FREE FIXED TOKEN MEMORY" for each of its memories.
std::string Rank::CacheText() const {
    if (entered_) return fmt::format("kept {} {}", job_.ctx, job_.kv_tokens);
    auto without = Needs(0);
    const auto with = Needs(1);
    [[maybe_unused]] const Status told = cluster_.claims().Claim(without);  // of other jobs
    // The processor can compute the experts that do not fit into a GPU.
    const uint64_t movable =
        host_ops_.fill && without.size() > 1 ? BytesOf(program_, host_ops_).experts : 0;
    std::string text;
    for (size_t i = 0; i < std::min(without.size(), with.size()); ++i) {
        const cluster::MemoryNeed& need = without[i];
        const uint64_t fixed = need.needed_bytes;
        text += fmt::format("{} {} {} {}\n", need.free_bytes - need.claimed_bytes,
                            i == 1 ? fixed - std::min(fixed, movable) : fixed,
                            with[i].needed_bytes - fixed, need.memory);
    }
    return text;
}

// Sizes the KV cache by the memories of all ranks. All ranks compute the same sizes.
Status Rank::AgreeOnCache() {
    if (job_.cache_share == 0) return {};
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("KV cache", CacheText(), Deadline::In(kPlacesMs)));
    const int64_t ctx = job_.ctx, tokens = job_.kv_tokens;
    std::vector<CacheSpace> rooms;
    bool kept = false;
    for (size_t rank = 0; rank < all.size(); ++rank) {
        std::istringstream lines(all[rank]);
        std::string word;
        if (all[rank].starts_with("kept")) {
            lines >> word >> job_.ctx >> job_.kv_tokens;
            kept = true;
        }
        const std::string& host = cluster_.host(static_cast<int>(rank)).boot_id;
        for (CacheSpace room; !kept &&
                              lines >> room.free_bytes >> room.fixed_bytes >> room.token_bytes &&
                              std::getline(lines, word);) {
            room.memory = host + word;
            rooms.push_back(room);
        }
    }
    if (!kept) SetCache(TokensThatFit(rooms, job_.cache_share));
    if (job_.ctx < 1 || job_.ctx > largest_.ctx || job_.kv_tokens < job_.ctx) {
        return MakeError(ErrorCode::kCorrupt,
                         "another rank has a KV cache of {} tokens for a context of {}; expected a "
                         "context of at most {}. Run the same build of Weft on all hosts",
                         job_.kv_tokens, job_.ctx, largest_.ctx);
    }
    job_.cache_agreed = true;
    return job_.ctx == ctx && job_.kv_tokens == tokens ? Status() : Compile();
}

// Adds up the needs of each machine's ranks and compares them with the machine's memory, before
// anything is read. All ranks get the same result.
Status Rank::CheckMemory(uint64_t freed_bytes) {
    auto needs = Needs(kv_pages_ * page_tokens());
    for (cluster::MemoryNeed& need : needs) {
        if (need.free_bytes > 0) need.free_bytes += freed_bytes;
    }
    const bool drafts = job_.draft_bytes > 0;
    const Status fits = cluster::CheckMemory(
        cluster_, needs, source_->name(),
        fmt::format(
            "weights{}, KV cache of {} tokens, {}activations{}{}",
            job_.adapters.empty() ? "" : " and adapters", job_.cache_tokens(),
            hyper_.has_state() ? fmt::format("{} slots of recurrent state, ", job_.state_slots)
                               : "",
            drafts ? ", the draft model on rank 0" : "", job_.cache_ram > 0 ? ", --cache-ram" : ""),
        fmt::format(
            "Use a smaller --ctx or --prefill-chunk (weft serve: --step-tokens), {}{}a smaller "
            "quantization{}, or more hosts.",
            hyper_.has_state() ? "fewer --max-seqs, " : "",
            job_.cache_ram > 0 ? "a smaller --cache-ram, " : "", drafts ? ", no --draft" : ""));
    if (fits.ok() || fits.error().code != ErrorCode::kOutOfMemory) return fits;
    const std::string advice = DriveAdvice();
    return advice.empty() ? fits
                          : MakeError(fits.error().code, "{}{}", fits.error().message, advice);
}

// Returns the part of an error about memory that states the job's speed with experts on the drive.
// Returns "" if the model has no experts or the job already leaves them on the drive.
std::string Rank::DriveAdvice() const {
    if (hyper_.moe.experts == 0 || job_.weights_on_drive || job_.feed) return "";
    const program::HostOps all{program::HostOps::kAllLayers, 0};
    const auto experts = static_cast<double>(HostWeightBytes(*source_, all));
    const double others = static_cast<double>(source_->TotalBytes()) - experts;
    const auto pool = backend::DescribePool(backend::kDefaultDevice);
    const double rate = MeasureDrive(*source_);
    if (!pool.ok() || rate <= 0) return "";
    const double room = std::max(0.0, 0.9 * static_cast<double>(pool->free_bytes) - others);
    const double hits = std::min(1.0, room / experts);
    const double token_bytes =
        experts * static_cast<double>(hyper_.moe.used) / static_cast<double>(hyper_.moe.experts);
    return fmt::format(
        " Or add --weights-on-drive{}: the drive gives {:.2f} GB/s and {:.0f} % of the experts fit "
        "into this host's memory, so a token would take about {:.2g} s.",
        device_->info().name == backend::kDefaultDevice || job_.experts.empty()
            ? ""
            : " and --experts cpu",
        rate * 1e-9, 100 * hits, (1 - hits) * token_bytes / rate);
}

}  // namespace weft::engine
