// The choice of the next tokens from the logits of a step.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "backend/thread_team.h"
#include "backend/top.h"
#include "engine/rank/running_request.h"

namespace weft::engine {

Result<GeneratedToken> ChancesOf(std::span<const float> logits, int32_t token, int count,
                                 Weights& weights) {
    const auto kept = static_cast<size_t>(std::max(count, 0));
    std::vector<backend::Candidate> best(std::clamp<size_t>(kept, 1, logits.size()));
    backend::TopK(logits, best);
    const float most = best[0].value;
    WEFT_TRY(CheckBest(most));
    weights.Set(logits, most, 1);
    const auto log_sum = static_cast<float>(std::log(weights.total())) + most;
    GeneratedToken said{{token, logits[static_cast<size_t>(token)] - log_sum}, {}};
    best.resize(std::min(best.size(), kept));
    for (const auto& [value, id] : best) said.best.push_back({id, value - log_sum});
    return said;
}

namespace {

// logprobs: as in Request.
Result<Drawn> WithChances(const Verdict& verdict, const LogitsRow& logits, int logprobs,
                          Weights& weights) {
    if (logprobs < 0) return Drawn{verdict, {{verdict.token, 0}, {}}};
    WEFT_ASSIGN(const auto all, logits.All());
    WEFT_ASSIGN(GeneratedToken said, ChancesOf(all, verdict.token, logprobs, weights));
    return Drawn{verdict, std::move(said)};
}

}  // namespace

Result<Drawn> Engine::RunningRequest::DrawFreely(const LogitsRow& logits, int32_t guess,
                                                 Weights& weights) {
    WEFT_ASSIGN(const int32_t token, sampler.Sample(logits, Context()));
    return WithChances({token == guess, token}, logits, request.logprobs, weights);
}

Error Engine::TooMuchOfMasks(const RunningRequest& active) {
    return MakeError(ErrorCode::kUnsupported,
                     "grammar: matching took {} steps for {} tokens, which delays the other "
                     "requests too long; make the grammar less ambiguous",
                     active.mask_steps, active.said + 1);
}

// Draws the next token among those that the matcher allows, and advances the matcher. An answer may
// begin its reasoning instead.
Result<int32_t> Engine::DrawAllowed(RunningRequest& active, const LogitsRow& logits) {
    SampleContext context = active.Context();
    auto& matcher = active.request.matcher;
    // The vocabulary may have tokens for which the embedding has no row.
    const auto words = static_cast<size_t>(tokenizer().vocab_size());
    allowed_.resize((std::max(logits.size(), words) + 31) / 32);
    uint64_t steps = 0;
    const bool alone = active_.size() == 1;  // no other request waits
    const Status made = matcher->Allowed(allowed_, &steps);
    if (!masks_.Spend(steps, active.mask_steps) && !alone) return TooMuchOfMasks(active);
    if (!made.ok()) return made.error();
    const int32_t opening = active.reasoning.opening();
    if (opening >= 0) allowed_[static_cast<size_t>(opening) / 32] |= 1u << (opening % 32);
    context.allowed = allowed_;
    WEFT_ASSIGN(const int32_t token, active.sampler.Sample(logits, context));
    if (token == opening) return token;
    steps = 0;
    WEFT_TRY(matcher->Accept(token, &steps));
    if (!masks_.Spend(steps, active.mask_steps) && !alone) return TooMuchOfMasks(active);
    return token;
}

// Draws the next token. A drafted token that was not drawn at random needs no judgment, because the
// sampler draws it with the right probability.
Result<Drawn> Engine::Draw(RunningRequest& active, const LogitsRow& logits, size_t place,
                           bool guessed) {
    const int32_t guess = guessed ? active.sequence.draft[place] : -1;
    Weights& weights = weights_of_part_[0];
    const int logprobs = active.request.logprobs;
    const auto forced = [&](int32_t token) {
        return WithChances({token == guess, token}, logits, logprobs, weights);
    };
    if (const int32_t next = active.reasoning.Forced(); next >= 0) return forced(next);
    if (guessed && active.drafts.own) {
        WEFT_TRY(active.sampler.Distribute(logits, active.Context(), wanted_));
        const Verdict verdict = active.sampler.Judge(wanted_, active.drafts.chances[place], guess);
        return WithChances(verdict, logits, logprobs, weights);
    }
    if (!active.constrained()) {
        auto drawn = active.DrawFreely(logits, guess, weights);
        const bool ends = active.request.matcher && drawn.ok() &&
                          tokenizer().IsEog(drawn->verdict.token) && active.reasoning.Close();
        return ends ? forced(active.reasoning.Forced()) : std::move(drawn);
    }
    WEFT_ASSIGN(const int32_t token, DrawAllowed(active, logits));
    return WithChances({token == guess, token}, logits, logprobs, weights);
}

// Whether the next token of this row may be drawn on any thread, and takes long: its sampler reads
// all logits.
bool Engine::DrawsAlone(const RunningRequest& active, const InFlightStep::Row& row) const {
    if (row.output < 0 || active.pooler || active.over || active.most == 0) return false;
    if (active.request.matcher || active.reasoning.Forced() >= 0) return false;
    if (row.drafted > 0 && active.drafts.own) return false;
    backend::WantedRows wanted;
    wanted.columns = hyper_.vocab;
    active.Want(wanted);
    return wanted.whole;
}

// Draws the first token of several requests at once, on the threads of the host. (Otherwise 32
// requests with a temperature and 128,000 tokens in the vocabulary take milliseconds.) Each request
// has its own sampler, so the tokens are the same as EmitToken's.
void Engine::DrawAhead(const InFlightStep& in_flight) {
    struct Work {
        RunningRequest* active;
        int32_t guess;  // -1: none
        std::span<const float> logits;
    };
    std::vector<Work> works;
    for (const InFlightStep::Row& row : in_flight.rows) {
        const auto it = active_.find(row.id);
        if (it == active_.end() || !DrawsAlone(*it->second, row)) continue;
        const auto logits = rank().Logits(row.output, logits_).InHostMemory();
        if (logits.empty()) continue;
        const int32_t guess = row.drafted > 0 ? it->second->sequence.draft[0] : -1;
        works.push_back({it->second.get(), guess, logits});
    }
    if (works.size() < 2) return;
    const int64_t begin_ns = NowNs();
    OnHostThreads(works.size(), [&](size_t i, Weights& weights) {
        RunningRequest& active = *works[i].active;
        active.ahead = active.DrawFreely(LogitsRow(works[i].logits), works[i].guess, weights);
    });
    working_.drawn_ahead += std::ssize(works);
    working_.sample_s += Seconds(begin_ns, NowNs());
}

void Engine::OnHostThreads(size_t count,
                           const std::function<void(size_t i, Weights& weights)>& work) {
    if (count == 1) return work(0, weights_of_part_[0]);  // wakes no other thread
    backend::ThreadTeam& team = rank().device()->host_team();
    weights_of_part_.resize(static_cast<size_t>(team.size()));
    std::atomic<size_t> next = 0;
    team.Run([&](int part) {
        Weights& weights = weights_of_part_[static_cast<size_t>(part)];
        for (size_t i = next++; i < count; i = next++) work(i, weights);
    });
}

}  // namespace weft::engine
