#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "base/log.h"
#include "cluster/worker/memory_check.h"
#include "engine/rank/device_options.h"
#include "engine/start/verify_model.h"
#include "model/rope_notes.h"
#include "model_files/content.h"
#include "model_files/hf/folder.h"
#include "model_files/hf/scratch.h"
#include "tensor/quant.h"
#include "train/dropout.h"
#include "train/export_source.h"
#include "train/grpo/judge.h"
#include "train/grpo/rollouts.h"
#include "train/head_source.h"
#include "train/less_memory.h"
#include "train/load_balance.h"
#include "train/lora/lora_source.h"
#include "train/parallel/pipeline.h"
#include "train/process_work.h"
#include "train/rank_device.h"

namespace weft::train {
namespace {

// Memory besides weights and activations: code, tokenizer, data, links, the allocator.
constexpr uint64_t kOverheadBytes = 64ull << 20;
constexpr const char* kHeld = "weights, gradients, optimizer state, activations";
constexpr const char* kHeldWithRewards =
    "weights, gradients, optimizer state, activations, KV cache, reward models";
// The need that a rank reports if it could not reserve its memory: more than any machine has.
constexpr uint64_t kNoMemory = 1ull << 50;

GeneratorSize SizeOf(const TrainerOptions& o, int64_t page_tokens) {
    if (!o.grpo.on) return {};
    const int64_t own = o.micro_batch * o.accumulation;
    GeneratorSize size = SizeOf(o.grpo, own, o.sequence, page_tokens);
    size.slots = std::min(size.slots, o.micro_batch * o.sequence);  // rows of a step
    return size;
}

Result<std::unique_ptr<model_files::ModelSource>> OpenBase(const TrainerOptions& options) {
    const std::string& model = options.model;
    if (options.from_scratch) {
        if (model_files::hf::IsFolder(model)) {
            if (!options.without_dropout) WEFT_TRY(CheckDropout(model));
            return model_files::hf::OpenScratch(model, options.seed);
        }
        return MakeError(
            ErrorCode::kUsage,
            "--from-scratch {}: expected a folder with config.json, tokenizer.json and "
            "tokenizer_config.json",
            model);
    }
    auto source = model_files::OpenModel(model);
    if (source.ok()) {
        const std::string folder = (*source)->folder();
        const bool asked = options.without_dropout || folder.empty();
        const Status checked = asked ? Status() : CheckDropout(folder);
        if (!checked.ok()) return checked.error();
    }
    if (source.ok() || !model_files::hf::LacksWeights(model)) return source;
    return MakeError(source.error().code, "{} To begin from random weights: --from-scratch",
                     source.error().message);
}

}  // namespace

Result<std::unique_ptr<model_files::ModelSource>> OpenSource(const TrainerOptions& options) {
    WEFT_ASSIGN(auto source, OpenBase(options));
    return WithHead(std::move(source), options.vectors, options.seed);
}

Result<std::vector<model::Shard>> ShardsOf(const TrainLayout& layout, const model::Hyper& hyper,
                                           const model_files::ModelSource& source) {
    if (layout.chunks > 1 && hyper.layers < layout.model.pp) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} layers cannot be cut into --pp {} x --virtual-stages {} = {} chunks: "
                         "use --virtual-stages {} or fewer",
                         hyper.layers, layout.pp(), layout.chunks, layout.model.pp,
                         std::max<int64_t>(1, hyper.layers / layout.pp()));
    }
    WEFT_ASSIGN(const model::ShardPlan plan, model::PlanShards(hyper, source, layout.model));
    std::vector<model::Shard> shards;
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
        shards.push_back(plan.shards[static_cast<size_t>(layout.shard(chunk))]);
    }
    return shards;
}

int64_t RowsOfStep(const TrainerOptions& options) {
    return std::max<int64_t>(options.sequence * options.micro_batch, options.cp);
}

Result<GraphOptions> GraphOptionsOf(const TrainerOptions& options, const TrainLayout& layout,
                                    const model::Hyper& hyper, bool overlap) {
    GraphOptions graph;
    graph.dtype = options.dtype;
    graph.gradients = GradientTypeOf(options, layout.dp);
    WEFT_ASSIGN(graph.recompute, FindRecompute(options.recompute));
    graph.sequence = options.sequence;
    graph.context_rank = layout.context_rank();
    graph.context_ranks = layout.cp;
    graph.rows = (RowsOfStep(options) + layout.cp - 1) / layout.cp;
    if (options.preference.on()) graph.rows *= 2;  // two answers are one sequence (loader.h)
    graph.vectors = options.vectors.on();
    if (graph.vectors) graph.rows *= options.vectors.texts;
    if (options.grpo.on) {
        graph.temperature = options.grpo.temperature;
        graph.generated_rows = SizeOf(options, graph.target.page_tokens).slots;
        graph.reference = options.grpo.beta > 0;
        graph.kv_dtype = options.dtype == DType::kF32 ? DType::kF32 : DType::kF16;
    }
    if (IsSupervised(options)) {
        graph.loss.smoothing = static_cast<float>(options.preference.label_smoothing);
        graph.loss.z_loss = static_cast<float>(options.z_loss);
        graph.noise = options.neftune_alpha > 0;
    }
    graph.row_shares = options.sequence_parallel;
    graph.load_balance = options.router_aux_loss > 0;
    graph.zero.stage = options.zero;
    graph.zero.ranks = layout.dp;
    graph.zero.rank = layout.replica;
    graph.zero.unit_elements = options.unit_elements;
    graph.zero.whole_elements = options.whole_elements;
    graph.zero.grain = UnitGrainOf(options.update.kind);
    if (overlap) graph.zero.prefetch_elements = options.unit_elements;
    // (Vectors need no output matrix.)
    if (layout.pp() > 1 && hyper.tied && !graph.vectors) graph.zero.alone = {"token_embd.weight"};
    return graph;
}

std::vector<std::string> ValueNames(const TrainerOptions& options) {
    if (options.grpo.on) return GrpoNames(options.grpo);
    if (options.vectors.on()) return VectorNames(options.vectors);
    if (IsSupervised(options)) return {"mean_token_accuracy"};
    std::vector<std::string> names;
    for (const auto name : PreferenceReport::NamesOf(options.preference.loss)) {
        names.emplace_back(PreferenceReport::kText[name]);
    }
    return names;
}

Trainer::~Trainer() {
    cluster_.SetProgress(nullptr);
}

Result<std::unique_ptr<Trainer>> Trainer::Make(const TrainerOptions& options,
                                               cluster::Cluster& cluster,
                                               std::unique_ptr<model_files::ModelSource> source,
                                               std::optional<TrainGroups> groups) {
    WEFT_TRY(CheckTrainer(options));
    std::unique_ptr<Trainer> trainer(new Trainer(options, cluster));
    trainer->source_ = std::move(source);
    cluster.SetPhase("load");
    WEFT_TRY(trainer->Plan());
    const Status planned =
        ChooseDevice({options.device, options.threads, options.reference}, cluster,
                     [&](std::shared_ptr<backend::Device> device, bool may_fail) {
                         return trainer->PlanOn(std::move(device), may_fail);
                     });
    if (!planned.ok() && planned.error().code == ErrorCode::kOutOfMemory) {
        const std::string& said = planned.error().message;
        const std::string advice = AdviseLessMemory(
            options, trainer->layout_.dp, [&](const auto& o) { return trainer->FitsWith(o); });
        return MakeError(ErrorCode::kOutOfMemory, "{}{}{}", said, said.ends_with(' ') ? "" : ". ",
                         advice);
    }
    WEFT_TRY(planned);
    // Ops run before the weights are loaded, too.
    cluster.SetProgress([t = trainer.get()] { return t->training_->progress() + ProcessWork(); });
    WEFT_ASSIGN(const std::string fingerprint, trainer->source_->Fingerprint());
    WEFT_TRY(cluster.Agree("model file", fingerprint, Deadline::In(kAgreeMs)));
    if (groups) {
        trainer->groups_ = *std::move(groups);
    } else {
        WEFT_ASSIGN(trainer->groups_, JoinGroups(cluster, trainer->layout_));
    }
    model_files::HashReads(trainer->source_->Files());
    WEFT_TRY(trainer->state_->Load(*trainer->training_, *trainer->source_, cluster));
    WEFT_TRY(trainer->AgreeOnBytes());
    WEFT_TRY(trainer->LoadReference());
    WEFT_TRY(trainer->reward_models_.Load(cluster));
    WEFT_TRY(trainer->rule_->Start(*trainer->training_));
    if (options.time_ops) {
        trainer->training_->SetTracing(true);
        trainer->op_seconds_.resize(trainer->training_->program().ops.size());
    }
    WEFT_TRY(cluster.Barrier("loaded", Deadline::In(kAgreeMs)));
    cluster.SetProgress([t = trainer.get()] { return t->training_->progress(); });
    cluster.SetPhase("train");
    return trainer;
}

// Checkpoints have the same identity.
Status Trainer::AgreeOnBytes() {
    const bool anew = options_.verify_model;
    std::atomic<int64_t> ticks{0};  // (ProcessWork counts the reads)
    WEFT_ASSIGN(identity_,
                engine::AgreeOnModel(cluster_, *source_, {.needed = true, .anew = anew}, ticks));
    if (!identity_.whole) {  // of a partial file, the header decides whether training continues
        WEFT_ASSIGN(identity_.model, source_->Fingerprint());
    }
    return {};
}

Status Trainer::Plan() {
    if (source_ == nullptr) {
        WEFT_ASSIGN(source_, OpenSource(options_));
    }
    WEFT_ASSIGN(source_, WithAdapters(std::move(source_), options_.lora));
    WEFT_ASSIGN(hyper_, model::ReadHyper(*source_));
    if (cluster_.rank() == 0) {
        for (const std::string& note : model::RopeNotes(*source_, hyper_)) {
            Log(LogLevel::kWarning, "{}", note);
        }
    }
    WEFT_ASSIGN(layout_,
                MakeTrainLayout(cluster_.size(), cluster_.rank(), LayoutWordsOf(options_)));
    micro_.SetContext(layout_.context_rank(), layout_.cp);
    if (options_.router_aux_loss < 0) {
        WEFT_ASSIGN(options_.router_aux_loss, LoadBalanceOf(*source_));
    }
    return {};
}

// Plans the Program within the available memory. For auto, all ranks use the first recomputation
// that fits on all, because tensor ranks repeat their sums together. may_fail: another limitation
// of one rank's device counts on all ranks as a lack of memory.
Status Trainer::PlanOn(std::shared_ptr<backend::Device> device, bool may_fail) {
    device_ = std::move(device);
    WEFT_TRY(AgreeOnSums());
    const std::string asked = options_.recompute;
    std::vector<std::string> ways = {asked};
    if (asked == "auto") ways = {"none", "selective", "full"};
    Status fits;
    for (const std::string& way : ways) {
        options_.recompute = way;
        const Status planned = PlanProgram();
        const bool no_memory = !planned.ok() && planned.error().code == ErrorCode::kOutOfMemory;
        if (!planned.ok() && !no_memory && !may_fail) return planned;
        fits = CheckMemory(planned.ok());
        if (fits.ok()) {
            return CheckAlike(layout_, options_.zero, device_->info(), may_fail, cluster_);
        }
        if (fits.error().code != ErrorCode::kOutOfMemory) return fits;
        if (!planned.ok()) fits = planned;
        rule_.reset();
        state_.reset();
        generator_.reset();
        reward_models_.Clear();
        training_.reset();
    }
    options_.recompute = asked;
    return fits;
}

// Ranks exchange the sums of an update: float64 if all devices have it, otherwise none uses it. All
// run collectives in one order, whichever devices leave the host's cores free (Overlaps).
Status Trainer::AgreeOnSums() {
    WEFT_ASSIGN(
        const std::vector<std::string> computing,
        cluster_.AllGather("what computes", device_->info().uses_host_cores ? "cores" : "a device",
                           Deadline::In(kAgreeMs)));
    cores_free_ = std::ranges::count(computing, "cores") < std::ssize(computing);
    const bool own = device_->info().target.float64_sums;
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("type of sums", own ? "f64" : "f32", Deadline::In(kAgreeMs)));
    float64_sums_ = std::ranges::count(all, "f32") == 0;
    const bool unlike = !float64_sums_ && std::ranges::count(all, "f64") > 0;
    if (!unlike || options_.update.kind != UpdateKind::kAdafactor) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "--optimizer adafactor adds up its statistics in float64, which the device of "
                     "rank {} lacks and that of rank {} uses. Use --optimizer adamw or adam8bit, "
                     "or one kind of device for all ranks",
                     std::ranges::find(all, "f32") - all.begin(),
                     std::ranges::find(all, "f64") - all.begin());
}

Status Trainer::PlanProgram() {
    if (!options_.optimizer_folder.empty() && !device_->info().uses_host_cores) {
        return MakeError(ErrorCode::kUnsupported,
                         "--optimizer-dir on {}: the state of the optimizer is in the memory of a "
                         "GPU. Leave out the flag, or use --device cpu",
                         device_->info().name);
    }
    WEFT_ASSIGN(const std::vector<model::Shard> shards, ShardsOf(layout_, hyper_, *source_));
    if (options_.lora.on()) {
        WEFT_ASSIGN(lora_, PlanLora(*source_, options_.lora));
        const std::string left_out = cluster_.rank() == 0 ? lora_.LeftOutText() : "";
        if (!left_out.empty()) Log(LogLevel::kWarning, "{}", left_out);
        // (For all stages, so all ranks return the same error.)
        WEFT_ASSIGN(const model::ShardPlan plan,
                    model::PlanShards(hyper_, *source_, layout_.model));
        WEFT_TRY(CheckStages(lora_, plan.shards, source_->name()));
    }
    WEFT_ASSIGN(GraphOptions graph_options, GraphOptionsOf(options_, layout_, hyper_, Overlaps()));
    if (options_.lora.on()) graph_options.lora = &lora_;
    graph_options.target = device_->info().target;
    WEFT_ASSIGN(TrainingGraph graph, BuildTrainingGraph(hyper_, shards, *source_, graph_options));
    units_ = std::move(graph.units);
    WEFT_TRY(PlanUpdate(graph.program));
    chunks_ = graph.program.chunks;
    const auto take = [&](std::vector<program::ModelChunk>& to) {
        if (chunks_.size() == shards.size()) return;
        to.assign(chunks_.end() - static_cast<ptrdiff_t>(shards.size()), chunks_.end());
        chunks_.resize(chunks_.size() - shards.size());
    };
    if (graph_options.reference) take(reference_);
    take(generating_);
    update_ = graph.program.update;
    backend::CompileOptions options;
    options.compute = options_.dtype;
    options.max_tokens = options.max_outputs = graph_options.rows;
    if (layout_.cp > 1) options.max_tokens = RowsOfStep(options_);
    options.longest = std::max<int64_t>(options_.sequence, options_.cp);
    if (graph_options.vectors) {
        vector_columns_ = std::max<int64_t>(LabelsOf(*source_), 0);
        if (vector_columns_ == 0) vector_columns_ = hyper_.hidden;
        options.output_columns = vector_columns_;
    }
    options.slots = SlotsOf(layout_.place());
    options.optimizer_folder = options_.optimizer_folder;
    options.beside = Overlaps();
    options.page_tokens = device_->info().target.page_tokens;
    const GeneratorSize size = SizeOf(options_, options.page_tokens);
    options.kv_pages = size.pages();
    WEFT_ASSIGN(training_, device_->Compile(std::move(graph.program), options));
    if (options_.dtype == DType::kF16) scaler_.emplace(options_.loss_scale);
    if (!options_.grpo.on) return {};
    generator_.emplace(
        GeneratorParts{*training_, *device_, groups_, layout_, generating_, hyper_.vocab,
                       options.max_tokens, [this] { return cluster_.stop_requested(); }},
        options_.grpo, size);
    const RewardModelOptions judges =
        JudgeOptions(options_.dtype, options_.sequence, RowsOfStep(options_), options_.grpo.day);
    return reward_models_.Plan(options_.grpo.models, judges, layout_, *device_);
}

Status Trainer::CheckMuon() const {
    if (options_.update.kind != UpdateKind::kMuon) return {};
    const bool shards = options_.zero > 0 && layout_.dp > 1;
    if (layout_.tp() == 1 && !shards) return {};
    return MakeError(
        ErrorCode::kUnsupported,
        "--optimizer muon with {}: Muon updates whole matrices, and ranks would hold "
        "parts of them. Use --zero 0 and --pp or --dp instead of --tp, or another "
        "optimizer",
        shards ? fmt::format("--zero {}", options_.zero) : fmt::format("--tp {}", layout_.tp()));
}

Status Trainer::PlanUpdate(program::ChunkedProgram& list) {
    WEFT_TRY(CheckMuon());
    state_ = std::make_unique<TrainState>();
    WEFT_TRY(state_->Agree(units_, cluster_, layout_.replica));
    const bool several = cluster_.size() > 1;
    rule_ = MakeUpdateRule(options_.update,
                           {*state_, *source_, several, cluster_.rank() == 0, float64_sums_});
    const bool ends = layout_.stage == 0 || layout_.stage == layout_.pp() - 1;
    after_update_ = AddUpdate(list, *state_, *rule_,
                              {layout_.dp > 1, layout_.pp() > 1 && ends, several, float64_sums_});
    if (options_.update.kind == UpdateKind::kScheduleFree) {
        state_->UseAverages(static_cast<float>(1 - 1 / options_.update.beta1), true);
    }
    return {};
}

// MPI allows only one thread.
bool Trainer::Overlaps() const {
    if (options_.zero < 2 || layout_.dp == 1 || options_.overlap == "off") return false;
    if (UsesMpi(cluster_.fabric())) return false;
    const std::vector<int> group = layout_.DataGroup();
    const std::string& host = cluster_.host(group.front()).boot_id;
    const bool always = options_.overlap == "on" || cores_free_;
    return always || std::ranges::any_of(
                         group, [&](int rank) { return cluster_.host(rank).boot_id != host; });
}

// planned: this rank has reserved its memory.
Status Trainer::CheckMemory(bool planned) {
    const backend::MemoryUse use = planned ? training_->memory() : backend::MemoryUse{kNoMemory};
    const uint64_t bytes =
        use.weight_bytes + use.kv_bytes + use.arena_bytes - use.host_bytes + reward_models_.bytes();
    WEFT_ASSIGN(const uint64_t of_loss, HostBytesOfLoss());
    return cluster::CheckMemory(cluster_,
                                engine::MemoryNeeds(*device_, bytes,
                                                    kOverheadBytes + use.host_bytes + of_loss +
                                                        cluster::WindowsBytes(cluster_)),
                                source_->name() + " in training",
                                options_.grpo.on ? kHeldWithRewards : kHeld, "");
}

// Bytes of the host's memory that the loss takes on this rank, beside the Program. Losses other
// than losses of vectors take little.
Result<uint64_t> Trainer::HostBytesOfLoss() const {
    const VectorOptions& vectors = options_.vectors;
    if (!vectors.on()) return 0;
    const auto number = [](int64_t x) { return static_cast<uint64_t>(x); };
    const int64_t own = options_.micro_batch * options_.accumulation;
    const uint64_t records = number(own * layout_.streams());
    WEFT_TRY(CheckVectorBatch(vectors, records));
    if (layout_.stage + 1 != layout_.pp()) {  // passes the sum of all vectors on
        return vectors.joins() ? records * number(vectors.texts * vector_columns_) * sizeof(float)
                               : 0;
    }
    model_files::EmbeddingHead head;
    if (!HasHead(vectors.loss)) {
        WEFT_ASSIGN(head, model_files::ReadEmbeddingHead(*source_));
    }
    WEFT_ASSIGN(const model_files::Pooling pooling, PoolingOf(vectors, head));
    const bool all_rows = pooling == model_files::Pooling::kMean;
    const int64_t of_text = all_rows ? options_.sequence : 1;
    return VectorLossBytes(vectors, number(options_.micro_batch * vectors.texts * of_text),
                           number(vector_columns_), records, number(own));
}

// Whether these options would fit on the open device. Collective.
bool Trainer::FitsWith(const TrainerOptions& options) const {
    auto source = OpenSource(options);
    if (!source.ok()) return false;
    Trainer trainer(options, cluster_);
    trainer.source_ = std::move(source).value();
    return trainer.Plan().ok() && trainer.PlanOn(device_, true).ok();
}

// ---- Passes -------------------------------------------------------------------------------------

Status Trainer::RunOps(const program::OpRange& ops, backend::Step& step) {
    WEFT_TRY(training_->Run(ops, step, groups_.ForSteps()));
    step.again = true;
    if (op_seconds_.empty()) return {};
    std::map<int32_t, float> seconds;  // an op may consist of several calls
    for (const backend::OpTiming& timing : training_->timings()) {
        seconds[timing.op] += static_cast<float>(timing.end_ns - timing.begin_ns) * 1e-9f;
    }
    for (const auto& [op, took] : seconds) op_seconds_[static_cast<size_t>(op)].push_back(took);
    return {};
}

std::span<const Sequence> Trainer::SequencesOf(const Batch& batch, const StagePass& which) const {
    const auto micro = static_cast<size_t>(options_.micro_batch);
    const std::span<const Sequence> all = batch.sequences;
    const size_t begin = std::min(static_cast<size_t>(which.micro_batch) * micro, all.size());
    return all.subspan(begin, std::min(micro, all.size() - begin));
}

Status Trainer::RunPass(const Batch& batch, const StagePass& which, PassKind pass) {
    const bool weighted = options_.preference.on() || options_.grpo.on || options_.vectors.on();
    if (weighted) return RunWeightedPass(batch, which, pass);
    const program::ModelChunk& chunk = chunks_[static_cast<size_t>(which.chunk)];
    const auto number_of = static_cast<size_t>(which.micro_batch);
    if (targets_of_.size() <= number_of) targets_of_.resize(number_of + 1);
    if (pass != PassKind::kBackward) {
        WEFT_TRY(micro_.Fill(SequencesOf(batch, which), hyper_.vocab, source_->name()));
        targets_of_[number_of] = micro_.targets();
        if (which.chunk == 0) positions_ += micro_.positions();
        if (options_.neftune_alpha > 0 && pass != PassKind::kEvaluate) {
            const auto first = static_cast<uint64_t>(which.micro_batch * options_.micro_batch);
            micro_.AddNoise(SequencesOf(batch, which),
                            {options_.neftune_alpha, options_.seed, batch.first + first, number(),
                             hyper_.hidden, options_.sequence});
        }
    }
    const double targets = static_cast<double>(std::max<uint64_t>(batch.global_targets, 1));
    backend::Step step = micro_.Step(number(), static_cast<float>(scale() / targets));
    step.slot = which.slot;
    step.again = pass == PassKind::kBackward;
    if (groups_.stages != nullptr) groups_.stages->SetChunk(which.chunk);
    const double share = static_cast<double>(micro_.targets()) / targets;
    step.side_gradient = static_cast<float>(options_.router_aux_loss * share * scale());
    // (The dummy row without a target also has a loss, which must not count.)
    const int64_t count = targets_of_[number_of];
    if (pass != PassKind::kBackward) {
        WEFT_TRY(RunOps(
            {chunk.begin, pass == PassKind::kEvaluate ? chunk.predict_begin : chunk.evaluate_begin},
            step));
        if (chunk.side_output != program::kNoValue) {
            float side = 0;
            WEFT_TRY(training_->ReadFloats(chunk.side_output, 0, {&side, 1}));
            aux_loss_ += share * double{side};
        }
    }
    if (pass == PassKind::kBoth || pass == PassKind::kBackward) {
        WEFT_TRY(RunOps(chunk.backward(), step));
    }
    if (pass == PassKind::kForward || count == 0) return {};
    const auto& [trained, evaluated, hits, evaluated_hits, predicted] = chunk.loss;
    const bool evaluates = pass == PassKind::kEvaluate;
    WEFT_ASSIGN(const double losses, SumOf(evaluates ? evaluated : trained, count));
    WEFT_ASSIGN(const double correct, SumOf(evaluates ? evaluated_hits : hits, count));
    loss_sum_ += losses;
    hits_ += correct;
    return {};
}

// The forward pass ends with the losses of the rows, from which the host computes the weights of
// the rows in the backward pass.
Status Trainer::RunWeightedPass(const Batch& batch, const StagePass& which, PassKind pass) {
    const program::ModelChunk& chunk = ChunkOf(which);
    const bool scores = chunk.loss.evaluated != program::kNoValue;
    const auto number_of = static_cast<size_t>(which.micro_batch);
    const bool joins = options_.vectors.joins();  // each backward pass sets its own weights
    const size_t at = joins ? 0 : number_of;
    if (row_weights_.size() <= at) row_weights_.resize(at + 1);
    std::vector<float>& weights = row_weights_[at];
    WEFT_TRY(micro_.Fill(SequencesOf(batch, which), hyper_.vocab, source_->name(), part_));
    const double targets = static_cast<double>(std::max<uint64_t>(batch.global_targets, 1));
    const double share = static_cast<double>(micro_.targets()) / targets;
    backend::Step step = micro_.Step(number(), static_cast<float>(scale()));
    step.slot = which.slot;
    step.side_gradient = static_cast<float>(options_.router_aux_loss * share * scale());
    if (groups_.stages != nullptr) groups_.stages->SetChunk(which.chunk);
    if (pass != PassKind::kBackward) {
        if (which.chunk == 0) positions_ += micro_.positions();
        WEFT_TRY(RunOps({chunk.begin, chunk.predict_begin}, step));
        if (chunk.side_output != program::kNoValue) {
            float side = 0;
            WEFT_TRY(training_->ReadFloats(chunk.side_output, 0, {&side, 1}));
            aux_loss_ += share * double{side};
        }
        if (scores) {
            const auto first = static_cast<size_t>(options_.micro_batch) * number_of;
            WEFT_TRY(ScoreAnswers(batch, which, first, weights));
        }
    }
    if (pass == PassKind::kForward || pass == PassKind::kEvaluate) return {};
    if (scores && joins) {
        SpreadSlopes(static_cast<size_t>(options_.micro_batch) * number_of, weights);
    }
    if (scores) step.row_weights = weights;
    step.again = false;
    return RunOps(chunk.backward(), step);
}

// begin: the first sequence of the micro-batch in the rank's batch.
Status Trainer::ScoreAnswers(const Batch& batch, const StagePass& which, size_t begin,
                             std::vector<float>& weights) {
    const program::ModelChunk& chunk = ChunkOf(which);
    const bool joins = options_.vectors.joins();
    if (joins && !reads_vectors_) return {};
    const auto columns = static_cast<size_t>(vector_columns_);
    std::vector<float> losses(static_cast<size_t>(micro_.targets()) * columns);
    if (!joins) weights.assign(std::max<size_t>(losses.size(), columns), 0.0f);
    if (micro_.empty()) return {};
    WEFT_TRY(training_->ReadFloats(chunk.loss.evaluated, 0, losses));
    if (options_.vectors.on()) {
        ScoreVectors(batch, begin, losses, weights);
        return {};
    }
    if (options_.grpo.on) {
        ScoreCompletions(batch, begin, losses, weights);
        return {};
    }
    if (!reads_logps_) {
        PreferenceLoss(options_.preference, batch, kl_)
            .Add(micro_.answers(), losses, micro_.in_answer(), weights, preference_);
        return {};
    }
    size_t answer = 0;
    for (size_t i = begin; answer < micro_.answers().size(); ++i) {
        for (size_t s = 0; s < batch.sequences[i].roles.size(); ++s) {
            const bool own = batch.sequences[i].roles[s] != SampleRole::kMismatched;
            if (own != (part_ == AnswerPart::kOwn)) continue;
            logps_[i * kMostAnswers + s] =
                LogProbability(micro_.answers()[answer++], losses, micro_.in_answer());
        }
    }
    return {};
}

// ---- Losses over vectors ------------------------------------------------------------------------

// rows: the vectors of the output rows.
void Trainer::ScoreVectors(const Batch& batch, size_t begin, std::span<const float> rows,
                           std::span<float> weights) {
    if (options_.vectors.joins()) {
        const auto columns = static_cast<size_t>(vector_columns_);
        size_t place = (batch.first + begin) * static_cast<size_t>(options_.vectors.texts);
        for (const AnswerRows& text : micro_.answers()) {
            Pool(rows.subspan(text.begin * columns, (text.end - text.begin) * columns), columns,
                 std::span(vectors_).subspan(place++ * columns, columns));
        }
        return;
    }
    std::vector<const Sequence*> records;
    for (size_t i = begin; i < batch.sequences.size(); ++i) {
        if (i >= begin + static_cast<size_t>(options_.micro_batch)) break;
        if (!batch.sequences[i].roles.empty()) records.push_back(&batch.sequences[i]);
    }
    AddScores(options_.vectors, records, batch.global_sequences, rows, weights, vector_sums_);
}

// The derivatives by the output rows of a micro-batch's texts.
void Trainer::SpreadSlopes(size_t begin, std::vector<float>& weights) {
    const auto columns = static_cast<size_t>(vector_columns_);
    weights.assign(std::max<size_t>(static_cast<size_t>(micro_.targets()), 1) * columns, 0.0f);
    size_t place = begin * static_cast<size_t>(options_.vectors.texts);
    for (const AnswerRows& text : micro_.answers()) {
        Unpool(std::span<const float>(vector_slopes_).subspan(place++ * columns, columns),
               std::span(weights).subspan(text.begin * columns, (text.end - text.begin) * columns));
    }
}

// Sets the derivatives by the vectors of this rank: a forward pass of all micro-batches comes
// before the passes of the update (Gao et al. 2021, GradCache).
Status Trainer::ReadVectors(const Batch& batch) {
    if (!options_.vectors.joins()) return {};
    const auto texts = static_cast<size_t>(options_.vectors.texts);
    const auto columns = static_cast<size_t>(vector_columns_);
    vectors_.assign(batch.all * texts * columns, 0.0f);
    reads_vectors_ = true;
    const Status ran = RunPasses(batch, true);
    reads_vectors_ = false;
    WEFT_TRY(ran);
    if (groups_.world != nullptr) {
        // (The tensor ranks of a stage have the same vectors.)
        if (!owns_loss()) std::ranges::fill(vectors_, 0.0f);
        net::OpTag tag;
        tag.op = "vectors";
        tag.step = number();
        WEFT_TRY(groups_.world->AllReduce(std::span<float>(vectors_), tag));
    }
    vector_sums_ = {};
    if (layout_.stage + 1 != layout_.pp()) return {};
    vector_slopes_.assign(batch.sequences.size() * texts * columns, 0.0f);
    const PinnedThread pinned(cluster_.cores());
    const VectorSums sums = train::JoinVectors(
        options_.vectors,
        {vectors_, texts, columns, batch.global_sequences, batch.first, batch.sequences.size()},
        cluster_.cores().size(), vector_slopes_);
    if (owns_loss() && layout_.replica == 0) vector_sums_ = sums;
    return {};
}

// The completions of a micro-batch are its sequences that are not empty.
void Trainer::ScoreCompletions(const Batch& batch, size_t begin, std::span<const float> losses,
                               std::span<float> weights) {
    const GrpoLoss loss(options_.grpo, BatchOf(batch));
    old_logps_.resize(std::max(old_logps_.size(), batch.sequences.size()));
    reference_logps_.resize(old_logps_.size());
    const auto take = [](std::span<const float> from, std::vector<float>& logps) {
        logps.resize(from.size());
        std::ranges::transform(from, logps.begin(), std::negate());
    };
    size_t i = begin;
    for (const AnswerRows& rows : micro_.answers()) {
        while (batch.sequences[i].roles.empty()) ++i;
        const Sequence& sequence = batch.sequences[i];
        const auto own = losses.subspan(rows.begin, rows.end - rows.begin);
        std::vector<float>&old = old_logps_[i], &reference = reference_logps_[i];
        ++i;
        if (reads_reference_) {
            take(own, reference);
            continue;
        }
        if (!again_) take(own, old);
        loss.Add(sequence.advantage, own, old, reference, weights.subspan(rows.begin, own.size()),
                 completions_);
    }
}

// The separate weights of the model before training: all, or the adapter of --lora-from.
Status Trainer::LoadReference() {
    if (reference_.empty() || (options_.lora.on() && options_.lora.from.empty())) return {};
    TrainerOptions before = options_;
    const std::string& other = options_.preference.ref_model;
    if (!other.empty()) {
        before.model = other;
        before.from_scratch = false;
    }
    WEFT_ASSIGN(auto model, OpenSource(before));
    WEFT_ASSIGN(const auto source, WithAdapters(std::move(model), options_.lora));
    for (const model_files::TensorInfo& tensor : source_->tensors()) {
        const model_files::TensorInfo* const same = source->FindTensor(tensor.name);
        if (same != nullptr && same->rows == tensor.rows && same->cols == tensor.cols) continue;
        return MakeError(ErrorCode::kUsage,
                         "--ref-model {}: its tensor {} differs from that of {}; expected a model "
                         "of the same shape",
                         source->name(), tensor.name, source_->name());
    }
    // (An adapter's files and the model below it are those in training, which ranks have compared.)
    const bool another = !options_.lora.on();
    if (another) model_files::HashReads(source->Files());
    for (const program::ModelChunk& chunk : reference_) {
        WEFT_TRY(LoadFrozen(*training_, chunk.first_value, chunk.end_value, *source, cluster_));
    }
    if (!another) return {};
    std::atomic<int64_t> ticks{0};
    const auto agreed = engine::AgreeOnModel(cluster_, *source, {}, ticks);
    return agreed.ok() ? Status() : Status(agreed.error());
}

// Sets reference_logps_ of the completions of this rank.
Status Trainer::ReadReference(const Batch& batch) {
    if (reference_.empty() || again_) return {};
    reads_reference_ = true;
    const Status ran = RunPasses(batch, true);
    reads_reference_ = false;
    return ran;
}

GrpoBatch Trainer::BatchOf(const Batch& batch) const {
    return {static_cast<double>(batch.global_sequences), static_cast<double>(batch.global_targets),
            static_cast<double>(options_.grpo.most_tokens)};
}

// Sets logps_ of the answers of one part, on the rank that has the loss.
Status Trainer::ReadLogps(const Batch& batch, AnswerPart part) {
    part_ = part;
    reads_logps_ = true;
    const Status ran = RunPasses(batch, true);
    part_ = AnswerPart::kOwn;
    reads_logps_ = false;
    return ran;
}

// The mean log-ratio of answers to other prompts, over all ranks.
Status Trainer::EstimateKl(const Batch& batch) {
    kl_ = 0;
    const auto count =
        static_cast<double>(batch.samples_of[static_cast<size_t>(SampleRole::kMismatched)]);
    if (options_.preference.loss != LossKind::kKto || count == 0) return {};
    logps_.assign(batch.sequences.size() * kMostAnswers, 0);
    WEFT_TRY(ReadLogps(batch, AnswerPart::kMismatched));
    double sum = 0;
    for (size_t i = 0; owns_loss() && i < batch.sequences.size(); ++i) {
        const Sequence& sequence = batch.sequences[i];
        for (size_t s = 0; s < sequence.roles.size(); ++s) {
            if (sequence.roles[s] != SampleRole::kMismatched) continue;
            sum += logps_[i * kMostAnswers + s] - sequence.reference[s];
        }
    }
    if (groups_.world != nullptr) {
        net::OpTag tag;
        tag.op = "kl";
        tag.step = number();
        WEFT_TRY(groups_.world->AllReduce(std::span<double>(&sum, 1), tag));
    }
    kl_ = std::max(0.0, sum / count);
    return {};
}

Result<std::vector<double>> Trainer::LogProbabilities(const Batch& batch) {
    if (cluster_.stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    logps_.assign(batch.sequences.size() * kMostAnswers, 0);
    WEFT_TRY(ReadLogps(batch, AnswerPart::kOwn));
    if (!TakesPairs(options_.preference.loss)) {
        WEFT_TRY(ReadLogps(batch, AnswerPart::kMismatched));
    }
    constexpr size_t kCols = 1 + kMostAnswers;
    std::vector<double> rows(batch.all * kCols, 0);
    for (size_t i = 0; owns_loss() && i < batch.sequences.size(); ++i) {
        if (batch.sequences[i].roles.empty()) continue;
        double* const row = &rows[(batch.first + i) * kCols];
        row[0] = static_cast<double>(batch.sequences[i].record) + 1;
        std::copy_n(&logps_[i * kMostAnswers], kMostAnswers, row + 1);
    }
    if (groups_.world != nullptr) {
        net::OpTag tag;
        tag.op = "reference";
        tag.step = number();
        WEFT_TRY(groups_.world->AllReduce(std::span<double>(rows), tag));
    }
    for (size_t i = 0; i < rows.size(); i += kCols) rows[i] -= 1;
    return rows;
}

Result<std::vector<std::vector<double>>> Trainer::ScoreByModels(
    std::span<const Judged> completions) {
    const WorkScope judges(cluster_, *training_, [this] { return reward_models_.progress(); });
    return reward_models_.Score(completions,
                                {groups_, updates_, [this] { return cluster_.stop_requested(); }});
}

Status Trainer::ShareFromFirst(std::span<std::byte> bytes) {
    if (groups_.world == nullptr) return {};
    net::OpTag tag;
    tag.op = "reference";
    tag.step = number();
    return groups_.world->Broadcast(bytes, 0, tag);
}

Result<double> Trainer::SumOf(program::ValueId rows, int64_t count) {
    if (rows == program::kNoValue) return 0.0;
    std::vector<float> floats(static_cast<size_t>(count));
    WEFT_TRY(training_->ReadFloats(rows, 0, floats));
    return std::accumulate(floats.begin(), floats.end(), 0.0);
}

// All replicas run the same number of passes, so their collectives match; stages and tensor ranks
// see the same data.
Status Trainer::RunPasses(const Batch& batch, bool evaluates) {
    const int64_t passes = NumberOfPasses(batch);
    const PipelinePlace place = layout_.place();
    const bool has_forward =
        options_.vectors.joins() && !evaluates && layout_.pp() == 1 && passes == 1;
    if (!has_forward) {
        loss_sum_ = aux_loss_ = hits_ = 0;
        positions_ = 0;
        preference_ = {};
        completions_ = {};
        if (!options_.vectors.joins()) vector_sums_ = {};
    }
    if (evaluates || layout_.pp() == 1) {
        const PassKind kind = evaluates     ? PassKind::kEvaluate
                              : has_forward ? PassKind::kBackward
                                            : PassKind::kBoth;
        for (const StagePass& pass : ScheduleForward(place, passes)) {
            WEFT_TRY(RunPass(batch, pass, kind));
        }
        return {};
    }
    // (Passes beyond the batch are empty.)
    for (const StagePass& pass : SchedulePasses(place, PassesOf(place, passes))) {
        WEFT_TRY(RunPass(batch, pass, pass.forward ? PassKind::kForward : PassKind::kBackward));
    }
    return {};
}

int64_t Trainer::NumberOfPasses(const Batch& batch) const {
    const auto own = static_cast<int64_t>(batch.sequences.size());
    const bool together = options_.zero >= 2 && layout_.dp > 1;
    return together ? options_.accumulation
                    : (own + options_.micro_batch - 1) / options_.micro_batch;
}

// Sums over all ranks; each value is contributed by exactly one rank.
Result<StepReport> Trainer::SumReport(const Batch& batch) {
    std::vector<double> sums(5);
    const bool preference = options_.preference.on(), supervised = IsSupervised(options_);
    if (supervised) sums.push_back(0);
    if (preference) sums.resize(sums.size() + PreferenceSums::kNames);
    if (options_.grpo.on) sums.resize(sums.size() + GrpoSums::kNames);
    if (options_.vectors.on()) sums.resize(sums.size() + VectorSums::kNames);
    const std::span<double> more = std::span(sums).subspan(5);
    if (owns_loss()) {
        sums[0] = loss_sum_;
        sums[2] = aux_loss_;
        if (supervised) more[0] = hits_;
        if (preference) std::ranges::copy(preference_.sums, more.begin());
        if (options_.grpo.on) std::ranges::copy(completions_.sums, more.begin());
        if (options_.vectors.on()) std::ranges::copy(vector_sums_.sums, more.begin());
    }
    if (layout_.tensor_rank == 0 && layout_.stage == 0) sums[1] = static_cast<double>(positions_);
    if (stop_request_ && stop_request_()) sums[3] = 1;
    if (grow_request_ && grow_request_()) sums[4] = 1;
    if (groups_.world != nullptr) {
        net::OpTag tag;
        tag.op = "loss";
        tag.step = number();
        WEFT_TRY(groups_.world->AllReduce(std::span<double>(sums), tag));
    }
    StepReport report;
    report.targets = static_cast<int64_t>(batch.global_targets);
    report.loss = sums[0] / static_cast<double>(report.targets);
    if (supervised) report.values = {more[0] / static_cast<double>(report.targets)};
    if (preference) {
        PreferenceSums all;
        std::ranges::copy(more, all.sums.begin());
        const PreferenceLoss loss(options_.preference, batch, kl_);
        PreferenceReport means = loss.Report(all);
        for (const auto name : PreferenceReport::NamesOf(options_.preference.loss)) {
            report.values.push_back(means[name]);
        }
        report.loss = all[PreferenceSums::kLoss];
        report.targets = loss.examples();
    }
    if (options_.grpo.on) {
        GrpoSums all;
        std::ranges::copy(more, all.sums.begin());
        report.loss = all[GrpoSums::kLoss];
        report.values = ValuesOf(all, options_.grpo);
    }
    if (options_.vectors.on()) {
        VectorSums all;
        std::ranges::copy(more, all.sums.begin());
        report.loss = all[VectorSums::kLoss];
        report.targets = static_cast<int64_t>(batch.global_sequences);
        report.values = VectorMeans(options_.vectors, all, batch.global_sequences);
    }
    report.positions = static_cast<int64_t>(sums[1]);
    if (options_.router_aux_loss > 0) report.aux_loss = sums[2];
    report.stop_requests = static_cast<int>(sums[3]);
    report.grows = sums[4] > 0;
    return report;
}

Result<StepReport> Trainer::Step(const Batch& batch, double learning_rate) {
    if (cluster_.stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    WEFT_TRY(EstimateKl(batch));
    WEFT_TRY(ReadReference(batch));
    WEFT_TRY(ReadVectors(batch));
    WEFT_TRY(training_->ZeroFill(program::Pool::kGradient));
    WEFT_TRY(RunPasses(batch, false));
    WEFT_ASSIGN(const double norm, GradientNorm());
    WEFT_ASSIGN(StepReport report, SumReport(batch));
    // (All ranks have the same bits, so all decide alike.)
    report.grad_norm = norm / scale();
    if (scaler_) report.loss_scale = scale();
    if (!std::isfinite(report.loss) || !std::isfinite(report.grad_norm)) {
        if (scaler_) return Overflowed(batch, std::move(report));
        return Diverged(batch, report);
    }
    const bool clips = options_.clip > 0 && report.grad_norm > options_.clip;
    // (1e-6 as in torch.nn.utils.clip_grad_norm_.)
    const double clipped = clips ? options_.clip / (report.grad_norm + 1e-6) : 1.0;
    if (before_update_) WEFT_TRY(before_update_());
    backend::Step update;
    update.again = true;
    update.number = ++updates_;
    update.rate = learning_rate;
    update.gradient_scale = clipped / scale();
    most_rate_ = std::max(most_rate_, learning_rate);
    squared_rates_ += most_rate_ * most_rate_;
    if (squared_rates_ > 0) update.average_share = most_rate_ * most_rate_ / squared_rates_;
    WEFT_TRY(RunOps(update_.apply(), update));
    if (scaler_) scaler_->Made();
    return report;
}

Status Trainer::Average() {
    backend::Step average;
    average.again = true;
    average.number = ++averaged_;
    average.rate = 0;
    average.gradient_scale = 1;
    return RunOps(after_update_.average, average);
}

Status Trainer::ShowAverage(bool averaged) {
    if (!rule_->has_view() || shows_average_ == averaged) return {};
    if (before_update_) WEFT_TRY(before_update_());
    shows_average_ = averaged;
    backend::Step view;
    view.again = true;
    view.number = updates_;
    return RunOps(averaged ? after_update_.averaged : after_update_.again, view);
}

void Trainer::ExportAverage() {
    const bool sums = options_.update.average_last > 0;
    state_->UseAverages(sums ? 1.0f / static_cast<float>(averaged_) : 1.0f);
}

// The norm of the whole batch's gradient, which all ranks sum up.
Result<double> Trainer::GradientNorm() {
    backend::Step update;
    update.again = true;
    update.number = updates_ + 1;
    WEFT_TRY(RunOps(update_.sum(), update));
    if (training_->program().value(update_.norm).dtype == DType::kF64) {
        double squares = 0;
        WEFT_TRY(training_->Read(update_.norm, 0, std::as_writable_bytes(std::span(&squares, 1))));
        return std::sqrt(squares);
    }
    float squares[2] = {};
    WEFT_TRY(training_->ReadFloats(update_.norm, 0, squares));
    // (The second value is the rounding error of the first; it is undefined for an infinity.)
    const double lost = std::isfinite(squares[0]) ? double{squares[1]} : 0.0;
    return std::sqrt(std::abs(double{squares[0]} + lost));
}

// A lower scale can repair gradients, but not a loss that is not finite: with a fixed scale,
// waiting is useless.
Result<StepReport> Trainer::Overflowed(const Batch& batch, StepReport report) {
    const bool hopeless = options_.loss_scale.fixed > 0 && !std::isfinite(report.loss);
    if (hopeless || !scaler_->Overflowed()) {
        WEFT_ASSIGN(const std::string where, FindNonFinite(batch));
        diverged_ = true;
        return MakeError(
            ErrorCode::kCorrupt,
            "step {}: the loss is {}, and float16 overflows at a loss scale of {}, which Weft does "
            "not lower further{}. Use --dtype bf16, which has float32's range, or a lower --lr",
            number(), report.loss, scale(), where);
    }
    ++skipped_;
    report.skipped = true;
    return report;
}

Result<StepReport> Trainer::Evaluate(const Batch& batch) {
    if (cluster_.stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    WEFT_TRY(EstimateKl(batch));
    WEFT_TRY(options_.vectors.joins() ? ReadVectors(batch) : RunPasses(batch, true));
    return SumReport(batch);
}

Result<std::optional<int32_t>> Trainer::NextToken(std::span<const int32_t> tokens,
                                                  const ChooseToken& choose) {
    if (cluster_.stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    const auto count = static_cast<int32_t>(tokens.size());
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), 0);
    const int32_t row = count - 1, target = 0;
    const backend::StepSequence sequence{0, count, 0, {}};
    backend::Step step;
    step.number = updates_;
    step.tokens = tokens;
    step.positions = positions;
    step.sequences = {&sequence, 1};
    step.output_rows = {&row, 1};
    step.targets = {&target, 1};
    for (size_t i = 0; i < chunks_.size(); ++i) {
        if (groups_.stages != nullptr) groups_.stages->SetChunk(static_cast<int>(i));
        step.again = false;
        WEFT_TRY(RunOps(chunks_[i].forward(), step));
        WEFT_TRY(RunOps(chunks_[i].predict(), step));
    }
    const program::ValueId predicted = chunks_.back().loss.predicted;
    const int chooser = layout_.RankOf(layout_.pp() - 1, 0, 0);
    Result<int32_t> chosen = -1;
    if (layout_.rank == chooser) {
        std::vector<float> logits(static_cast<size_t>(hyper_.vocab));
        WEFT_TRY(training_->ReadFloats(predicted, 0, logits));
        chosen = choose(logits);
    }
    // The token from the rank that chose it, and the number of ranks that request a stop.
    double sums[] = {layout_.rank == chooser && chosen.ok() ? *chosen + 1.0 : 0.0,
                     stop_request_ && stop_request_() ? 1.0 : 0.0};
    if (groups_.world != nullptr) {
        net::OpTag tag;
        tag.op = "token";
        tag.step = updates_;
        WEFT_TRY(groups_.world->AllReduce(std::span<double>(sums), tag));
    }
    if (!chosen.ok()) return chosen.error();
    if (sums[1] > 0) return std::optional<int32_t>();
    if (sums[0] > 0) return std::optional(static_cast<int32_t>(sums[0]) - 1);
    return MakeError(ErrorCode::kCorrupt, "rank {} found no next token at step {}", chooser,
                     updates_);
}

// Repeats the passes op by op and finds the first op, and its rank, with a value that is not
// finite.
Result<std::string> Trainer::FindNonFinite(const Batch& batch) {
    found_.clear();
    training_->SetProbe([this](int32_t op, int64_t rows) { return NoteNonFinite(op, rows); });
    Status again = ReadVectors(batch);
    if (again.ok()) again = training_->ZeroFill(program::Pool::kGradient);
    if (again.ok()) again = RunPasses(batch, false);
    training_->SetProbe(nullptr);
    if (!again.ok()) return again.error();
    auto all =
        cluster_.AllGather("first number that is not finite", found_, Deadline::In(kAgreeMs));
    if (!all.ok()) return all.error();
    for (size_t rank = 0; rank < all->size(); ++rank) {
        if ((*all)[rank].empty()) continue;
        return fmt::format(": on rank {}, {} wrote the first value that is not finite", rank,
                           (*all)[rank]);
    }
    return std::string();
}

// Notes the first op that wrote a value that is not finite: "op 17 (mat_mul) l0.attn.q".
Status Trainer::NoteNonFinite(int32_t number, int64_t rows) {
    if (!found_.empty()) return {};
    const program::Program& program = training_->program();
    const program::Op& op = program.ops[static_cast<size_t>(number)];
    for (const program::ValueId id : op.outputs) {
        const program::Value& value = program.value(id);
        if (value.dtype == DType::kI32 || value.dtype == DType::kF64) continue;
        if (value.name.ends_with(".lse")) continue;  // (padding behind a device's own layout)
        const bool by_rows = value.shape[0] < 0;
        const int64_t count = value.shape.Elements(0, 0);
        const int64_t cols = value.shape.Elements(1, 1) / (by_rows ? 1 : value.shape[0]);
        const int64_t elements = by_rows ? rows * cols : count;
        std::vector<std::byte> bytes(static_cast<size_t>(RowBytes(value.dtype, elements)));
        std::vector<float> floats(static_cast<size_t>(elements));
        WEFT_TRY(training_->Read(id, 0, bytes));
        DequantizeRow(value.dtype, bytes, floats);
        if (std::ranges::all_of(floats, [](float x) { return std::isfinite(x); })) continue;
        found_ = fmt::format("op {} ({}) {}", number, program::OpName(op.kind()), value.name);
        return {};
    }
    return {};
}

Error Trainer::Diverged(const Batch& batch, const StepReport& report) {
    const Result<std::string> where = FindNonFinite(batch);
    if (!where.ok()) return where.error();
    diverged_ = true;
    return MakeError(ErrorCode::kCorrupt,
                     "step {}: the loss is {}, the gradient norm {}{}: training has diverged. Use "
                     "a lower --lr or a longer warm-up{}",
                     number(), report.loss, report.grad_norm, *where,
                     options_.grpo.on ? ", or smaller rewards" : "");
}

Status Trainer::SetProgress(const TrainerProgress& progress) {
    updates_ = progress.updates;
    skipped_ = progress.skipped;
    averaged_ = progress.averaged;
    most_rate_ = progress.most_rate;
    squared_rates_ = progress.squared_rates;
    return scaler_ && progress.loss_scale ? scaler_->Restore(*progress.loss_scale) : Status();
}

TrainerProgress Trainer::progress() const {
    TrainerProgress progress{updates_, skipped_, averaged_, most_rate_, squared_rates_, {}};
    if (scaler_) progress.loss_scale = scaler_->state();
    return progress;
}

std::unique_ptr<model_files::ModelSource> Trainer::Export() const {
    return std::make_unique<ExportSource>(*source_, *state_, groups_.world.get());
}

Status Trainer::ServeExport() const {
    return groups_.world == nullptr ? Status()
                                    : train::ServeExport(*source_, *state_, *groups_.world);
}

}  // namespace weft::train
