#include "engine/drafts/draft_model.h"

#include <algorithm>
#include <utility>

#include "backend/device_list.h"
#include "base/log.h"
#include "hw/cpu.h"
#include "model/hyper.h"
#include "model_files/read_tokenizer.h"

namespace weft::engine {
namespace {

constexpr uint64_t kHashFactor = 0x9e3779b97f4a7c15;
// Share of a step's cost that one more row adds, before measurements.
constexpr double kRowShare = 0.1;
constexpr double kLeastDraftGain = 1.03;
// Steps without drafts after a draft that did not pay; doubles each time.
constexpr int64_t kFirstPause = 8;
constexpr int64_t kMostPause = 128;
// Tokens drafted to test whether drafts pay again.
constexpr int64_t kTrial = 2;

Job DraftJob(const std::string& model, const Job& job, int64_t answers) {
    Job draft;
    draft.model = model;
    draft.tp = draft.pp = 1;
    draft.ctx = job.ctx;
    draft.kv_tokens = job.kv_tokens;
    draft.chunk = job.chunk;
    draft.max_outputs = answers;
    draft.kv_dtype = job.kv_dtype;
    draft.reference = job.reference;
    draft.exact = job.exact;
    draft.device = backend::DeviceNames(job.device)[0];
    draft.self_test = false;
    draft.warm_up = job.warm_up;
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
        "A draft model needs the vocabulary of the model: use a smaller model of the same family, "
        "or --prompt-lookup, which needs no second model";
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

Status PrepareDraftModel(const std::string& draft_model, int64_t answers, Job& job,
                         std::unique_ptr<tokenizer::Tokenizer>& tokenizer) {
    if (tokenizer == nullptr) {
        WEFT_ASSIGN(const auto source, model_files::OpenModel(job.model));
        WEFT_ASSIGN(tokenizer, model_files::LoadTokenizer(*source));
    }
    WEFT_ASSIGN(const auto source, model_files::OpenModel(draft_model));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    if (hyper.has_state()) {
        return MakeError(
            ErrorCode::kUnsupported,
            "--draft {}: a model with recurrent layers cannot draft, because it cannot remove "
            "rejected tokens from its state. Use another draft model, or --prompt-lookup",
            draft_model);
    }
    WEFT_ASSIGN(const auto words, model_files::LoadTokenizer(*source));
    WEFT_TRY(CompareVocabularies(job.model, *tokenizer, draft_model, *words));
    WEFT_ASSIGN(const auto cluster, OwnCluster(nullptr));
    const std::string name = backend::DeviceNames(job.device)[0];
    std::shared_ptr<backend::Device> device;
    if (name != backend::kAutoDevice) {  // with `auto`, the ranks move if one is full
        backend::DeviceOptions options;
        options.reference = job.reference;
        options.exact = job.exact;
        WEFT_ASSIGN(device, backend::OpenDevice(name, options));
    }
    Job draft = DraftJob(draft_model, job, answers);
    draft.kv_tokens = job.step_rows();  // the job's own number is not final
    WEFT_ASSIGN(const auto rank, Rank::Make(draft, *cluster, nullptr, std::move(device)));
    const backend::MemoryUse use = rank->memory();
    job.draft_bytes = static_cast<int64_t>(use.weight_bytes + use.arena_bytes);
    job.draft_token_bytes =
        static_cast<int64_t>(use.kv_bytes) / (rank->kv_pages() * rank->page_tokens());
    return {};
}

// ---- Length of a draft --------------------------------------------------------------------------

// Tokens per second with drafts of `tokens` tokens for each answer, relative to tokens per second
// without drafts.
double DraftLength::Gain(int64_t tokens, int64_t answers, const StepCosts& costs,
                         const StepCosts& draft_costs) const {
    double said = 1, chance = 1;
    for (int64_t i = 0; i < tokens; ++i) said += chance *= rate_.value();
    const double one = measured_ ? costs.Of(answers) : 0;
    const double k = static_cast<double>(tokens), steps = at_once_ ? 1 : k;
    if (one <= 0) return said / (1 + k * kRowShare + steps * ratio_);
    const double own = draft_costs.Of(answers);
    const double drafting = own > 0 ? own : ratio_ * one;
    return said * one / (costs.Of(answers * (tokens + 1)) + steps * drafting);
}

int64_t DraftLength::Choose(int64_t most, int64_t answers, const StepCosts& costs,
                            const StepCosts& draft_costs) {
    if (wait_ > 0) {
        --wait_;
        return 0;
    }
    int64_t best = 0;
    double best_gain = kLeastDraftGain;
    for (int64_t tokens = 1; tokens <= most; ++tokens) {
        const double gain = Gain(tokens, answers, costs, draft_costs);
        if (gain <= best_gain) continue;
        best = tokens;
        best_gain = gain;
    }
    if (best > 0) {
        pause_ = 0;
        return best;
    }
    // A draft does not pay now, but the text may change by the end of the pause.
    const bool trial = pause_ > 0;
    pause_ = std::clamp(2 * pause_, kFirstPause, kMostPause);
    wait_ = pause_;
    return trial ? std::min(most, kTrial) : 0;
}

void DraftLength::Learn(int64_t checked, int64_t accepted) {
    for (int64_t i = 0; i < checked; ++i) rate_.Learn(i < accepted);
}

// ---- Content of its KV cache --------------------------------------------------------------------

int64_t DraftPages::Known(uint64_t space, std::span<const int32_t> tokens,
                          std::span<const int32_t> pages) const {
    int64_t known = 0;
    for (const int32_t number : pages) {
        const Page& page = pages_[static_cast<size_t>(number)];
        if (page.tokens.empty() || page.before != space) break;
        const auto rest = tokens.subspan(static_cast<size_t>(known));
        const auto same = std::ranges::mismatch(rest, page.tokens).in1 - rest.begin();
        known += same;
        if (same < page_tokens_) break;
        space = page.after;
    }
    return known;
}

void DraftPages::Note(uint64_t space, std::span<const int32_t> tokens,
                      std::span<const int32_t> pages, int64_t from, int64_t to) {
    while (from < to) {
        const auto index = static_cast<size_t>(from / page_tokens_);
        const int64_t offset = from % page_tokens_;
        Page& page = pages_[static_cast<size_t>(pages[index])];
        if (index > 0) space = pages_[static_cast<size_t>(pages[index - 1])].after;
        page.before = space;
        const int64_t count = std::min(page_tokens_ - offset, to - from);
        const auto rows = tokens.subspan(static_cast<size_t>(from), static_cast<size_t>(count));
        page.tokens.resize(static_cast<size_t>(offset));
        page.tokens.insert(page.tokens.end(), rows.begin(), rows.end());
        page.after = page.before;
        for (const int32_t token : page.tokens) {
            page.after = (page.after ^ static_cast<uint32_t>(token)) * kHashFactor;
            page.after ^= page.after >> 29;
        }
        from += count;
    }
}

// ---- The model ----------------------------------------------------------------------------------

Result<std::unique_ptr<DraftModel>> DraftModel::Open(const std::string& draft_model,
                                                     int64_t answers, Rank& rank,
                                                     const std::atomic<bool>* stop) {
    // The draft model's cluster uses the cores of this thread, which the device of the job's model
    // may have pinned to one core.
    const PinnedThread pinned(rank.cluster().cores());
    std::unique_ptr<DraftModel> model(new DraftModel(draft_model, answers));
    WEFT_ASSIGN(model->cluster_, OwnCluster(stop));
    WEFT_TRY(model->Serve(rank));
    return model;
}

// Loads the draft model for the device of `rank`.
Status DraftModel::Load(Rank& rank) {
    rank.CountProgressOf(nullptr);
    rank_.reset();
    const Job job = DraftJob(name_, rank.job(), answers_);
    WEFT_ASSIGN(auto own, Rank::Make(job, *cluster_, nullptr, rank.device()));
    WEFT_TRY(own->Enter());
    pages_ = std::make_unique<DraftPages>(own->kv_pages(), own->page_tokens());
    rank_ = std::move(own);
    return {};
}

Status DraftModel::Serve(Rank& rank) {
    const bool fits = rank_ != nullptr && rank_->device() == rank.device() &&
                      rank_->kv_pages() >= rank.kv_pages();
    if (!fits) WEFT_TRY(Load(rank));
    const double bytes = static_cast<double>(rank.source().TotalBytes());
    ratio_ = static_cast<double>(rank_->source().TotalBytes()) *
             static_cast<double>(rank.layout().tp) / std::max(1.0, bytes);
    target_ = &rank;
    // Last, because the job's rank then refers to it.
    rank.CountProgressOf(rank_.get());
    return {};
}

// Whether drafting must end.
Status DraftModel::CheckJob() const {
    cluster::Cluster& job = target_->cluster();
    if (job.stop_requested()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    net::PeerMonitor* monitor = job.monitor();
    return monitor != nullptr && monitor->Failed() ? Status(monitor->Failure()) : Status();
}

void DraftModel::Begin(const DraftText& text, Going& going) const {
    going.tokens.assign(text.tokens.begin(), text.tokens.end());
    going.known = pages_->Known(text.space, text.tokens, text.pages);
    // The logits after the last token are needed.
    if (text.count > 0) {
        going.known = std::min(going.known, static_cast<int64_t>(text.tokens.size()) - 1);
        text.draft->clear();
        if (text.chances != nullptr) text.chances->clear();
        going.sampler.Become(text.own != nullptr ? *text.own : *text.sampler);
    }
    // A model may have rows for more tokens than its vocabulary, and the draft model fewer.
    const int64_t vocab = rank_->hyper().vocab;
    going.over = std::ranges::any_of(text.tokens.subspan(static_cast<size_t>(going.known)),
                                     [&](int32_t token) { return token >= vocab; });
}

// Adds missing rows of the text, as many as fit into the step. The others follow with the next
// draft.
void DraftModel::AddRows(const DraftText& text, Going& going) {
    going.output = -1;
    const auto size = static_cast<int64_t>(going.tokens.size());
    const int64_t room = rank_->job().step_rows() - static_cast<int64_t>(step_.tokens.size());
    const int64_t rows = std::min(size - going.known, room);
    const int64_t pages = (going.known + rows + rank_->page_tokens() - 1) / rank_->page_tokens();
    if (going.over || rows <= 0 || pages > static_cast<int64_t>(text.pages.size())) {
        going.over = true;
        return;
    }
    StepData::Sequence sequence;
    const auto own = text.pages.first(static_cast<size_t>(pages));
    sequence.pages.assign(own.begin(), own.end());
    const std::span<const int32_t> tokens = going.tokens;
    step_.Append(tokens.subspan(static_cast<size_t>(going.known), static_cast<size_t>(rows)),
                 going.known, std::move(sequence));
    pages_->Note(text.space, tokens, text.pages, going.known, going.known + rows);
    going.known += rows;
    going.over = text.count == 0 || going.known < size;
    if (going.over) return;
    going.sampler.Want(false, step_.wanted);
    going.output = static_cast<int32_t>(step_.output_rows.size());
    step_.output_rows.push_back(static_cast<int32_t>(step_.tokens.size()) - 1);
}

Status DraftModel::Guess(std::span<const DraftText> texts) {
    going_.resize(std::max(going_.size(), texts.size()));
    for (size_t i = 0; i < texts.size(); ++i) Begin(texts[i], going_[i]);
    const int64_t common = std::min(rank_->hyper().vocab, target_->hyper().vocab);
    for (;;) {
        WEFT_TRY(CheckJob());
        const int64_t begin_ns = NowNs();
        step_.Clear();
        step_.wanted.columns = common;
        for (size_t i = 0; i < texts.size(); ++i) AddRows(texts[i], going_[i]);
        if (step_.tokens.empty()) break;
        WEFT_TRY(rank_->Run(step_));
        if (step_.output_rows.empty()) break;
        for (size_t i = 0; i < texts.size(); ++i) {
            if (going_[i].output < 0) continue;
            Going& going = going_[i];
            const Status drawn = DrawGuess(texts[i], going.tokens, going.sampler,
                                           rank_->Logits(going.output, logits_, common));
            going.over = !drawn.ok() || std::ssize(*texts[i].draft) >= texts[i].count;
            if (drawn.ok()) continue;
            if (std::exchange(warned_, true)) continue;
            Log(LogLevel::kWarning, "--draft {} drafts no tokens: {}", name_,
                drawn.error().message);
        }
        const auto rows = static_cast<int64_t>(step_.tokens.size());
        if (std::cmp_equal(rows, step_.output_rows.size())) {
            costs_.Learn(rows, SecondsSince(begin_ns));
        }
    }
    for (size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].own != nullptr) texts[i].own->Become(going_[i].sampler);
    }
    return {};
}

}  // namespace weft::engine
