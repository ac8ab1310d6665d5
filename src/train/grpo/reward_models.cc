#include "train/grpo/reward_models.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/deadline.h"
#include "base/log.h"
#include "chat/chat.h"
#include "engine/start/verify_model.h"
#include "model_files/content.h"
#include "model_files/read_tokenizer.h"
#include "train/data/day.h"
#include "train/data/preference.h"
#include "train/graph.h"
#include "train/grpo/judge.h"
#include "train/head_source.h"
#include "train/state.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

// (Not a number means a text that the model cannot read.)
constexpr double kNotFinite = std::numeric_limits<double>::infinity();

// Whether the model gives a text one number, as --loss reward trains it.
Status CheckHead(const model_files::ModelSource& source, const std::string& name) {
    WEFT_ASSIGN(const std::string architecture, source.meta().String("general.architecture"));
    WEFT_ASSIGN(const bool causal, source.meta().BoolOr(architecture + ".attention.causal", true));
    if (!causal) {
        return MakeError(ErrorCode::kUnsupported,
                         "--reward-model {}: an encoder; Weft judges completions with causal "
                         "models. Score with 'weft serve' and --reward-cmd instead (recipes.md)",
                         name);
    }
    const bool dense = source.FindTensor("cls.weight") != nullptr;
    const int64_t labels = LabelsOf(source);
    if (labels == 1 && !dense) return {};
    return MakeError(ErrorCode::kUsage,
                     "--reward-model {}: {}; expected a score head of one output, as in a folder "
                     "that --loss reward writes or of a class ...ForSequenceClassification with "
                     "num_labels 1",
                     name,
                     labels == 0 ? "it has no score head"
                     : dense     ? "its score head has another layer"
                                 : fmt::format("its score head has {} outputs", labels));
}

// Names the flag in an error of this model, unless the error names it.
Error WithFlag(const Error& error, const std::string& name) {
    if (error.message.starts_with("--reward-model")) return error;
    return MakeError(error.code, "--reward-model {}: {}", name, error.message);
}

}  // namespace

Result<std::unique_ptr<model_files::ModelSource>> OpenRewardModel(const std::string& name) {
    auto source = model_files::OpenModel(name);
    if (!source.ok()) return WithFlag(source.error(), name);
    const Status fits = CheckHead(**source, name);
    if (!fits.ok()) return WithFlag(fits.error(), name);
    return source;
}

RewardModelOptions JudgeOptions(DType dtype, int64_t sequence, int64_t step_rows, std::string day) {
    constexpr int64_t kMostJudgedRows = 4096;
    const int64_t longest = 2 * sequence;
    return {dtype, longest, std::max(longest, std::min(step_rows, kMostJudgedRows)),
            std::move(day)};
}

Result<program::ChunkedProgram> BuildJudge(const model::Hyper& hyper,
                                           std::span<const model::Shard> shards,
                                           const model_files::ModelSource& source,
                                           const RewardModelOptions& options,
                                           const program::Target& target) {
    const auto compile = CompileOptionsOfJudge(hyper, options, target);
    GraphOptions graph;
    graph.dtype = graph.gradients = options.dtype;
    graph.sequence = compile.longest;
    graph.rows = compile.max_tokens;
    graph.vectors = true;
    graph.target = target;
    return BuildScoringGraph(hyper, shards, source, graph);
}

backend::CompileOptions CompileOptionsOfJudge(const model::Hyper& hyper,
                                              const RewardModelOptions& options,
                                              const program::Target& target) {
    backend::CompileOptions compile;
    compile.compute = options.dtype;
    compile.longest = std::min(options.sequence, hyper.context);
    compile.max_tokens = compile.max_outputs = std::max(options.rows, compile.longest);
    compile.page_tokens = target.page_tokens;
    return compile;
}

class RewardModels::Model {
  public:
    // (One chunk per stage: the model may have few layers.)
    Model(std::string name, const TrainLayout& layout) : name_(std::move(name)), layout_(layout) {
        layout_.model.pp = layout_.pp();
        layout_.chunks = 1;
        model::Layout& cut = layout_.model;
        cut.ep = 0;
        if (!cut.pp_shares.empty()) cut.pp_shares.resize(static_cast<size_t>(cut.pp));
    }

    Status Plan(const RewardModelOptions& options, backend::Device& device) {
        WEFT_ASSIGN(source_, OpenRewardModel(name_));
        WEFT_ASSIGN(const auto head, model_files::ReadEmbeddingHead(*source_));
        padding_ = head.padding;
        WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source_));
        wanted_ = options.sequence;
        const program::Target& target = device.info().target;
        const auto compile = CompileOptionsOfJudge(hyper, options, target);
        most_ = compile.longest;
        most_rows_ = compile.max_tokens;
        WEFT_TRY(OpenEncoder(hyper, options.day));
        WEFT_ASSIGN(const std::vector<model::Shard> shards, ShardsOf(layout_, hyper, *source_));
        WEFT_ASSIGN(program::ChunkedProgram program,
                    BuildJudge(hyper, shards, *source_, options, target));
        chunk_ = program.chunks.front();
        WEFT_ASSIGN(executable_, device.Compile(std::move(program), compile));
        return {};
    }

    int64_t progress() const { return executable_->progress(); }
    uint64_t bytes() const {
        const backend::MemoryUse use = executable_->memory();
        return use.weight_bytes + use.arena_bytes;
    }

    Status Load(cluster::Cluster& cluster) {
        WEFT_ASSIGN(const std::string fingerprint, source_->Fingerprint());
        WEFT_TRY(cluster.Agree("reward model", fingerprint, Deadline::In(kAgreeMs)));
        const auto values = static_cast<program::ValueId>(executable_->program().values.size());
        model_files::HashReads(source_->Files());
        WEFT_TRY(LoadFrozen(*executable_, 0, values, *source_, cluster));
        std::atomic<int64_t> ticks{0};
        const auto agreed = engine::AgreeOnModel(cluster, *source_, {}, ticks);
        return agreed.ok() ? Status() : Status(agreed.error());
    }

    Result<std::vector<double>> Score(std::span<const Judged> completions,
                                      const RewardModelRun& run) {
        const auto replica = static_cast<size_t>(layout_.replica);
        const auto replicas = static_cast<size_t>(layout_.dp);
        const size_t all = completions.size();
        std::vector<double> rewards(all, 0);
        Step step;
        for (size_t i = all * replica / replicas; i < all * (replica + 1) / replicas; ++i) {
            // (All ranks of the replica read the same text.)
            const auto text = TextOf(completions[i]);
            if (!text.ok()) {
                if (is_last()) rewards[i] = std::numeric_limits<double>::quiet_NaN();
                WarnOfUnread(text.error());
                continue;
            }
            if (std::ssize(step.tokens) + std::ssize(*text) > most_rows_) {
                WEFT_TRY(Run(run, step, rewards));
            }
            step.Add(i, *text);
        }
        WEFT_TRY(Run(run, step, rewards));
        if (run.groups.world != nullptr) {
            net::OpTag tag;
            tag.op = "rewards";
            tag.step = run.step;
            WEFT_TRY(run.groups.world->AllReduce(std::span(rewards), tag));
        }
        if (std::ranges::none_of(rewards, [](double x) { return std::isinf(x); })) return rewards;
        return MakeError(ErrorCode::kCorrupt,
                         "--reward-model {}: the reward of a completion is not finite. Does the "
                         "model work ('weft serve', /v1/score)?",
                         name_);
    }

  private:
    // The rows of a step: whole texts, and the last row of each.
    struct Step {
        std::vector<int32_t> tokens, positions, last_rows;
        std::vector<backend::StepSequence> sequences;
        std::vector<size_t> completions;

        void Add(size_t completion, std::span<const int32_t> text) {
            const auto begin = static_cast<int32_t>(tokens.size());
            const auto count = static_cast<int32_t>(text.size());
            sequences.push_back({begin, count, 0, {}});
            tokens.insert(tokens.end(), text.begin(), text.end());
            for (int32_t i = 0; i < count; ++i) positions.push_back(i);
            last_rows.push_back(begin + count - 1);
            completions.push_back(completion);
        }
    };

    // The rank of a replica that contributes the rewards.
    bool is_last() const { return layout_.tensor_rank == 0 && layout_.stage + 1 == layout_.pp(); }

    Status OpenEncoder(const model::Hyper& hyper, const std::string& day) {
        WEFT_ASSIGN(tokenizer_, model_files::LoadTokenizer(*source_));
        EncoderOptions how;
        auto chat = chat::Chat::Load(source_->meta(), *tokenizer_);
        if (chat.ok()) {
            chat_ = std::make_unique<chat::Chat>(*std::move(chat));
        } else {
            how.no_chat = chat.error().message;
        }
        WEFT_ASSIGN(how.now_s, NoonOf(day));
        WEFT_ASSIGN(auto encoder, Encoder::Make(*tokenizer_, chat_.get(), 1, hyper.vocab, how));
        encoder_.emplace(std::move(encoder));
        return {};
    }

    // Up to the row that has the score. Errors: a template that refuses the completion; too long.
    Result<std::vector<int32_t>> TextOf(const Judged& judged) const {
        auto sample = EncodeJudged(*encoder_, *judged.record, judged.text);
        if (!sample.ok()) return WithFlag(sample.error(), name_);
        std::vector<int32_t>& tokens = sample->tokens;
        while (tokens.size() > 1 && tokens.back() == padding_) tokens.pop_back();
        if (std::ssize(tokens) <= most_) return std::move(tokens);
        return MakeError(
            ErrorCode::kUnsupported,
            "--reward-model {}: a prompt and its completion have {} of its tokens, "
            "and it reads at most {}. {}",
            name_, tokens.size(), most_,
            most_ < wanted_ ? "Use a model with a longer context" : "Use a larger --seq-len");
    }

    void WarnOfUnread(const Error& error) {
        if (std::exchange(told_unread_, true)) return;
        Log(LogLevel::kWarning, "{}. Such completions get no reward from it", error.message);
    }

    // Sets the rewards of the step's completions on the rank that has them, and empties the step.
    Status Run(const RewardModelRun& run, Step& rows, std::vector<double>& rewards) {
        if (rows.tokens.empty()) return {};
        if (run.stops && run.stops())
            return MakeError(ErrorCode::kCancelled, "stopped by the user");
        const std::vector<int32_t> targets(rows.last_rows.size(), 0);
        backend::Step step;
        step.number = run.step;
        step.tokens = rows.tokens;
        step.positions = rows.positions;
        step.sequences = rows.sequences;
        step.output_rows = rows.last_rows;
        step.targets = targets;
        if (run.groups.stages != nullptr) run.groups.stages->SetChunk(0);
        WEFT_TRY(executable_->Run(chunk_.forward(), step, run.groups.ForSteps()));
        const Step done = std::exchange(rows, {});
        if (!is_last()) return {};
        std::vector<float> scores(done.completions.size());
        WEFT_TRY(executable_->ReadFloats(chunk_.loss.evaluated, 0, scores));
        for (size_t i = 0; i < scores.size(); ++i) {
            rewards[done.completions[i]] =
                std::isfinite(scores[i]) ? double{scores[i]} : kNotFinite;
        }
        return {};
    }

    const std::string name_;
    TrainLayout layout_;
    int64_t most_ = 0, most_rows_ = 0;  // tokens of a text; rows of a step
    int64_t wanted_ = 0;                // tokens of a text, if the model's context has as many
    std::unique_ptr<model_files::ModelSource> source_;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
    std::unique_ptr<chat::Chat> chat_;
    std::optional<Encoder> encoder_;
    program::ModelChunk chunk_;
    std::unique_ptr<backend::Executable> executable_;
    int32_t padding_ = -1;  // EmbeddingHead::padding
    bool told_unread_ = false;
};

RewardModels::RewardModels() = default;
RewardModels::~RewardModels() = default;

Status RewardModels::Plan(std::span<const std::string> models, const RewardModelOptions& options,
                          const TrainLayout& layout, backend::Device& device) {
    Clear();
    for (const std::string& name : models) {
        auto model = std::make_unique<Model>(name, layout);
        const Status planned = model->Plan(options, device);
        if (!planned.ok()) return WithFlag(planned.error(), name);
        models_.push_back(std::move(model));
    }
    return {};
}

void RewardModels::Clear() {
    models_.clear();
}

uint64_t RewardModels::bytes() const {
    uint64_t sum = 0;
    for (const auto& model : models_) sum += model->bytes();
    return sum;
}

int64_t RewardModels::progress() const {
    int64_t sum = 0;
    for (const auto& model : models_) sum += model->progress();
    return sum;
}

Status RewardModels::Load(cluster::Cluster& cluster) {
    for (const auto& model : models_) WEFT_TRY(model->Load(cluster));
    return {};
}

Result<std::vector<std::vector<double>>> RewardModels::Score(std::span<const Judged> completions,
                                                             const RewardModelRun& run) {
    std::vector<std::vector<double>> all;
    for (const auto& model : models_) {
        WEFT_ASSIGN(std::vector<double> own, model->Score(completions, run));
        all.push_back(std::move(own));
    }
    return all;
}

}  // namespace weft::train
