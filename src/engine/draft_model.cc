#include "engine/draft_model.h"

#include <algorithm>

#include "model_files/read_tokenizer.h"

namespace weft::engine {
namespace {

// Draws of the draft model are to be independent of those of the model.
constexpr uint64_t kOtherSeed = 0x9e3779b97f4a7c15;
// Another row in a step of the model, where that is not measured.
constexpr double kRowShare = 0.1;
constexpr double kLeastGain = 1.03;
// After a draft that is not worth its cost: so many steps without one, twice as many each time.
constexpr int64_t kFirstPause = 8;
constexpr int64_t kMostPause = 128;
// What is drafted to see whether it is worth it again.
constexpr int64_t kTrial = 2;

Job DraftJob(const std::string& model, const Job& job) {
    Job draft;
    draft.model = model;
    draft.tp = draft.pp = 1;
    draft.ctx = job.ctx;
    draft.chunk = job.chunk;
    draft.kv_dtype = job.kv_dtype;
    draft.reference = job.reference;
    draft.device = job.device;
    draft.proof = false;
    return draft;
}

Result<std::unique_ptr<cluster::Cluster>> OwnCluster(const std::atomic<bool>* stop) {
    cluster::ClusterOptions options;
    options.stop = stop;
    return cluster::Cluster::Launch(options, "");
}

std::string Quoted(std::string_view piece) {
    constexpr size_t kMost = 40;
    return fmt::format("{:?}", piece.substr(0, kMost));
}

}  // namespace

Status CompareVocabularies(const std::string& model, const tokenizer::Tokenizer& tokenizer,
                           const std::string& draft_model, const tokenizer::Tokenizer& draft) {
    const char* advice =
        "A draft model needs the model's own vocabulary: take a smaller one of the same family, "
        "or --lookup, which needs none";
    if (tokenizer.vocab_size() != draft.vocab_size()) {
        return MakeError(ErrorCode::kUsage,
                         "--draft {}: its vocabulary has {} tokens, that of {} has {}. {}",
                         draft_model, draft.vocab_size(), model, tokenizer.vocab_size(), advice);
    }
    for (int32_t id = 0; id < draft.vocab_size(); ++id) {
        if (tokenizer.Piece(id) == draft.Piece(id)) continue;
        return MakeError(ErrorCode::kUsage, "--draft {}: its token {} is {}, that of {} is {}. {}",
                         draft_model, id, Quoted(draft.Piece(id)), model,
                         Quoted(tokenizer.Piece(id)), advice);
    }
    return {};
}

Status CheckVocabulary(const std::string& model, const tokenizer::Tokenizer& tokenizer,
                       const std::string& draft_model) {
    WEFT_ASSIGN(const auto source, model_files::OpenModel(draft_model));
    WEFT_ASSIGN(const auto draft, model_files::LoadTokenizer(*source));
    return CompareVocabularies(model, tokenizer, draft_model, *draft);
}

Result<int64_t> DraftModelBytes(const std::string& model, const Job& job) {
    WEFT_ASSIGN(const auto cluster, OwnCluster(nullptr));
    backend::DeviceOptions options;
    options.reference = job.reference;
    WEFT_ASSIGN(auto device, backend::OpenDevice(job.device, options));
    WEFT_ASSIGN(const auto rank,
                Rank::Make(DraftJob(model, job), *cluster, nullptr, std::move(device)));
    const backend::MemoryUse use = rank->memory();
    return static_cast<int64_t>(use.weight_bytes + use.kv_bytes + use.arena_bytes);
}

// ---- How many tokens ----------------------------------------------------------------------------

// Tokens a second with a draft of so many, over those without one.
double DraftLength::Gain(int64_t tokens, const StepCosts& costs) const {
    double said = 1, chance = 1;
    for (int64_t i = 0; i < tokens; ++i) said += chance *= rate_.value();
    const double one = measured_ ? costs.Of(1) : 0;
    const double k = static_cast<double>(tokens);
    if (one <= 0) return said / (1 + k * (kRowShare + ratio_));
    const double own = draft_costs_.Of(1);
    const double drafting = own > 0 ? own : ratio_ * one;
    return said * one / (costs.Of(tokens + 1) + k * drafting);
}

int64_t DraftLength::Choose(int64_t most, const StepCosts& costs) {
    if (wait_ > 0) {
        --wait_;
        return 0;
    }
    int64_t best = 0;
    double best_gain = kLeastGain;
    for (int64_t tokens = 1; tokens <= most; ++tokens) {
        const double gain = Gain(tokens, costs);
        if (gain <= best_gain) continue;
        best = tokens;
        best_gain = gain;
    }
    if (best > 0) {
        pause_ = 0;
        return best;
    }
    // Not worth it; but the text may have changed by the end of the pause.
    const bool trial = pause_ > 0;
    pause_ = std::clamp(2 * pause_, kFirstPause, kMostPause);
    wait_ = pause_;
    return trial ? std::min(most, kTrial) : 0;
}

void DraftLength::Learn(int64_t checked, int64_t accepted) {
    for (int64_t i = 0; i < checked; ++i) rate_.Learn(i < accepted);
}

// ---- The model ----------------------------------------------------------------------------------

Result<std::unique_ptr<DraftModel>> DraftModel::Open(const DraftOptions& options, const Job& job,
                                                     Rank& rank, const std::atomic<bool>* stop) {
    WEFT_ASSIGN(auto cluster, OwnCluster(stop));
    WEFT_ASSIGN(auto own,
                Rank::Make(DraftJob(options.model, job), *cluster, nullptr, rank.device()));
    const double bytes = static_cast<double>(rank.source().TotalBytes());
    const double ratio = static_cast<double>(own->source().TotalBytes()) *
                         static_cast<double>(rank.layout().tp) / std::max(1.0, bytes);
    std::unique_ptr<DraftModel> model(new DraftModel(options.always, ratio));
    model->cluster_ = std::move(cluster);
    model->rank_ = std::move(own);
    WEFT_TRY(model->rank_->Enter());
    // Not before: what the job's rank looks at has to stay.
    model->Serve(rank);
    return model;
}

void DraftModel::Serve(Rank& rank) {
    target_ = &rank;
    rank.CountProgressOf(*rank_);
}

Status DraftModel::CheckJob() const {
    cluster::Cluster& job = target_->cluster();
    if (job.stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    net::PeerMonitor* monitor = job.monitor();
    return monitor != nullptr && monitor->Failed() ? Status(monitor->Failure()) : Status();
}

Status DraftModel::Begin(std::span<const int32_t> prompt, const SamplerOptions& sampler) {
    SamplerOptions own = sampler;
    own.seed ^= kOtherSeed;
    sampler_.emplace(own);
    greedy_ = sampler.temperature <= 0 || sampler.top_k == 1;
    length_.Begin(greedy_);
    cached_.clear();
    return Follow(prompt);
}

Status DraftModel::Follow(std::span<const int32_t> tokens) {
    const auto same = std::ranges::mismatch(tokens, cached_);
    auto at = static_cast<size_t>(same.in1 - tokens.begin());
    at = std::min(at, tokens.size() - 1);
    cached_.resize(at);
    const auto chunk = static_cast<size_t>(rank_->job().chunk);
    while (at < tokens.size()) {
        WEFT_TRY(CheckJob());
        const size_t count = std::min(chunk, tokens.size() - at);
        const auto last = static_cast<int32_t>(count) - 1;
        const bool wanted = at + count == tokens.size();
        const auto rows = tokens.subspan(at, count);
        step_.OfOneSequence(rows, static_cast<int64_t>(at), {&last, wanted ? size_t{1} : 0},
                            rank_->page_tokens());
        WEFT_TRY(rank_->Run(step_));
        cached_.insert(cached_.end(), rows.begin(), rows.end());
        at += count;
    }
    logits_.resize(static_cast<size_t>(rank_->hyper().vocab));
    return rank_->ReadLogits(1, logits_);
}

Status DraftModel::Propose(std::span<const int32_t> history, int64_t most, const StepCosts& costs,
                           Draft& draft) {
    draft.Clear();
    const int64_t count = always_ ? most : length_.Choose(most, costs);
    // A model may have rows for more tokens than its vocabulary, and another one fewer of them.
    const int64_t own = rank_->hyper().vocab, common = std::min(own, target_->hyper().vocab);
    const bool known = std::ranges::all_of(history, [&](int32_t token) { return token < own; });
    if (count == 0 || !known) return {};
    text_.assign(history.begin(), history.end());
    for (int64_t i = 0; i < count; ++i) {
        const int64_t begin_ns = NowNs();
        WEFT_TRY(Follow(text_));
        if (i > 0) length_.LearnDraftToken(SecondsSince(begin_ns));
        Distribution chances;
        const auto logits = std::span<const float>(logits_).first(static_cast<size_t>(common));
        WEFT_TRY(sampler_->Distribute(logits, text_, chances));
        const int32_t token = greedy_ ? chances.entries[0].id : sampler_->DrawFrom(chances);
        text_.push_back(token);
        draft.tokens.push_back(token);
        // A greedy guess is certain, and the model's own choice is compared with it.
        if (!greedy_) draft.chances.push_back(std::move(chances));
    }
    return {};
}

}  // namespace weft::engine
