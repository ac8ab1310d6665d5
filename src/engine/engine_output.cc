// The output of a step: the answers' next tokens, text and ends; embeddings.
#include <algorithm>
#include <utility>

#include "engine/rank/running_request.h"

namespace weft::engine {
namespace {

// logits: the logits of the row before the token.
Result<GeneratedToken> ScoreOf(std::span<const float> logits, int32_t token, int count,
                               Weights& weights) {
    WEFT_ASSIGN(GeneratedToken score, ChancesOf(logits, token, count, weights));
    const float own = logits[static_cast<size_t>(token)];
    score.rank = 1 + std::ranges::count_if(logits, [own](float other) { return other > own; });
    return score;
}

}  // namespace

Status Engine::EmitStep(const InFlightStep& in_flight) {
    const int64_t begin_ns = NowNs();
    if (!in_flight.rows.empty()) {
        WEFT_TRY(Pool(in_flight));
        DrawAhead(in_flight);
        WEFT_TRY(EmitTokens(in_flight));
        losses_ = 0;
    }
    if (draft_head_ != nullptr) NoteForHead();
    ReapFinished();
    working_.say_s += Seconds(begin_ns, NowNs());
    return {};
}

Status Engine::EmitTokens(const InFlightStep& in_flight) {
    if (!generates()) return {};
    for (const InFlightStep::Row& row : in_flight.rows) {
        if (row.output < 0 && row.score_rows == 0) continue;
        const auto it = active_.find(row.id);
        if (it == active_.end() || it->second->pooler) continue;  // cancelled meanwhile
        if (row.score_rows > 0) ScorePrompt(*it->second, row);
        if (row.output < 0 || it->second->over) continue;
        it->second->sequence.in_flight = false;
        EmitRow(*it->second, row);
        working_.last_token_ns = NowNs();
    }
    return {};
}

// Scores tokens of a prompt, each once: a step may run again after a preemption or a loss, and the
// cache may have delivered scores while it ran.
void Engine::ScorePrompt(RunningRequest& active, const InFlightStep::Row& row) {
    const std::vector<int32_t>& prompt = active.request.prompt;
    const int count = active.request.prompt_logprobs;
    const int64_t first = row.position + row.score_begin + 1;  // token that the first row scores
    const auto done = std::ssize(active.scores) + 1;           // token that is scored next
    const int64_t end = std::min<int64_t>(first + row.score_rows, std::ssize(prompt));
    if (first <= done && done < end && !active.over) {
        std::vector<Result<GeneratedToken>> scores(static_cast<size_t>(end - done),
                                                   GeneratedToken());
        const auto row_of = [&](size_t i) {
            const int64_t place = done - first + static_cast<int64_t>(i);
            return rank().Logits(row.scores + place, logits_);
        };
        const auto token_of = [&](size_t i) { return prompt[static_cast<size_t>(done) + i]; };
        std::vector<std::span<const float>> held;
        for (size_t i = 0; i < scores.size(); ++i) held.push_back(row_of(i).InHostMemory());
        if (std::ranges::none_of(held, [](const auto& logits) { return logits.empty(); })) {
            OnHostThreads(scores.size(), [&](size_t i, Weights& weights) {
                scores[i] = ScoreOf(held[i], token_of(i), count, weights);
            });
        } else {
            for (size_t i = 0; i < scores.size(); ++i) {
                const auto all = row_of(i).All();
                if (!all.ok()) return End(active, all.error());
                scores[i] = ScoreOf(*all, token_of(i), count, weights_of_part_[0]);
            }
        }
        for (Result<GeneratedToken>& score : scores) {
            if (!score.ok()) return End(active, score.error());
            if (!active.over) TakeScore(active, *std::move(score));
        }
    }
    if (!active.sequence.scored() && active.request.cached) {
        scores_.Keep(active.sequence.space(), prompt, active.request.prompt_logprobs,
                     active.scores);
    }
}

// Reports the next score of a prompt. Rows with a known score need no logits.
void Engine::TakeScore(RunningRequest& active, GeneratedToken score) {
    active.listener->OnPrompt(score);
    active.scores.push_back(std::move(score));
    const bool all = active.scores.size() + 1 >= active.request.prompt.size();
    active.sequence.score_from = all ? Sequence::kNotScored : std::ssize(active.scores);
}

// Finds known scores of a prompt.
void Engine::FindScores(RunningRequest& active) {
    const Sequence& s = active.sequence;
    if (!s.scored() || !active.request.cached || Leaves(s.id)) return;
    std::vector<GeneratedToken> found;
    scores_.Find(s.space(), active.request.prompt, std::ssize(active.scores) + 1,
                 active.request.prompt_logprobs, found);
    for (GeneratedToken& score : found) TakeScore(active, std::move(score));
}

// Whether a request's end was requested but not yet processed.
bool Engine::Leaves(int64_t id) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(commands_, [&](const Command& command) {
        return command.id == id && command.added == nullptr;
    });
}

// Emits the next token, and more while drafts are accepted. (The end of an answer removes its
// sequence.)
void Engine::EmitRow(RunningRequest& active, const InFlightStep::Row& row) {
    if (active.most == 0) return EndWell(active, "length");
    Sequence& s = active.sequence;
    active.steps += active.said > 0 ? 1 : 0;
    active.drafted += row.drafted;
    int64_t checked = 0, accepted = 0;
    for (size_t i = 0;; ++i) {
        const bool guessed = i < static_cast<size_t>(row.drafted);
        const LogitsRow logits = rank().Logits(row.output + static_cast<int64_t>(i), logits_);
        const bool stays = EmitToken(active, logits, i, guessed);
        checked += guessed ? 1 : 0;
        accepted += stays ? 1 : 0;
        if (!stays || active.over || Leaves(s.id)) break;
        scheduler_->Keep(s);
    }
    drafts_.Count(active.drafts, row.drafted, checked, accepted);
    if (!active.over) scheduler_->EndDraft(s);
}

// Embeddings: adds the hidden states of the step's rows; after a prompt's last row, emits its
// vector.
Status Engine::Pool(const InFlightStep& in_flight) {
    for (const InFlightStep::Row& row : in_flight.rows) {
        const auto it = active_.find(row.id);
        if (it == active_.end() || !it->second->pooler) continue;
        RunningRequest& active = *it->second;
        active.sequence.in_flight = false;
        if (!rank().has_hidden()) {
            End(active,
                MakeError(ErrorCode::kUnsupported,
                          "the cluster has pipeline stages now, so it generates no embeddings"));
            continue;
        }
        WEFT_TRY(rank().ReadHidden(row.begin, row.count, hidden_));
        active.pooler->Add(hidden_, row.position);
        if (row.output < 0) continue;
        active.first_ns = NowNs();
        auto vector = active.pooler->Finish();
        if (!vector.ok()) {
            End(active, vector.error());
            continue;
        }
        active.listener->OnEmbedding(std::move(*vector));
        EndWell(active, "embedding");
    }
    return {};
}

// Draws and emits the next token of one request; true: it is the drafted token at that place.
bool Engine::EmitToken(RunningRequest& active, const LogitsRow& logits, size_t place,
                       bool guessed) {
    const bool constrained = active.constrained();
    const int32_t opening = active.reasoning.opening();
    const int64_t begin_ns = NowNs();
    auto drawn = active.ahead ? *std::exchange(active.ahead, std::nullopt)
                              : Draw(active, logits, place, guessed);
    if (!drawn.ok()) {
        End(active, drawn.error());
        return false;
    }
    const auto& [accepted, token] = drawn->verdict;
    active.accepted += accepted ? 1 : 0;
    if (active.first_ns == 0) {
        active.first_ns = NowNs();
        active.listener->OnPrefilled(Seconds(active.submitted_ns, active.started_ns),
                                     Seconds(active.submitted_ns, active.first_ns),
                                     active.sequence.from_cache);
    }
    active.sequence.tokens.push_back(token);
    ++active.said;
    // A judged draft is chosen only once. If the step that judges it is lost, the next step of this
    // token judges it.
    active.sequence.last_apart = active.drafts.own.has_value();
    ++working_.generated_tokens;
    working_.sample_s += Seconds(begin_ns, NowNs());
    const Request& request = active.request;
    const bool asked = std::ranges::find(request.end_tokens, token) != request.end_tokens.end();
    const bool eos = asked || (tokenizer().IsEog(token) && !request.ignore_eos);
    const bool shown = !eos || (asked && request.includes_stop && !tokenizer().IsSpecial(token));
    const bool ends = active.said > request.min_tokens;
    const std::string text = shown ? active.stop.Push(active.decoder.Push(token), ends) : "";
    rank().SetIdle(true);  // until the next step: a listener may block on a stopped reader
    active.listener->OnToken(drawn->said, text);
    active.reasoning.Take(token, text, constrained && token != opening);
    std::string finish;
    if (eos) {
        finish = "eos";
    } else if (active.stop.stopped() || (constrained && active.request.matcher->Ended())) {
        finish = "stop";
    } else if (active.said >= active.most) {
        finish = active.most == active.request.max_tokens ? "length" : "context";
    }
    if (!finish.empty()) EndWell(active, finish);
    return accepted;
}

void Engine::EndWell(RunningRequest& active, const std::string& finish) {
    const int64_t now_ns = NowNs();
    if (active.started_ns == 0) active.started_ns = now_ns;
    if (active.first_ns == 0) active.first_ns = now_ns;
    Ending ending{finish};
    ending.prompt_tokens = static_cast<int64_t>(active.request.prompt.size());
    ending.cached_tokens = active.sequence.from_cache;
    ending.generated_tokens = active.said;
    ending.queue_s = Seconds(active.submitted_ns, active.started_ns);
    ending.first_token_s = Seconds(active.submitted_ns, active.first_ns);
    ending.total_s = Seconds(active.submitted_ns, now_ns);
    if (finish == "stop") ending.stop_text = active.stop.found();
    ending.steps = active.steps;
    ending.drafted = active.drafted;
    ending.accepted = active.accepted;
    const auto& matcher = active.request.matcher;
    ending.complete = !matcher || (matcher->CanEnd() && ending.stop_text.empty());
    End(active, ending);
}

void Engine::End(RunningRequest& active, const Result<Ending>& ending) {
    if (active.over) return;
    active.over = true;
    {
        const std::lock_guard lock(mutex_);
        WaitsNoMore(active.sequence.id);
    }
    std::string rest;
    if (ending.ok()) {
        rest = active.stop.Push(active.decoder.Flush());
        rest += active.stop.Flush();
    }
    const bool cancelled = !ending.ok() && ending.error().code == ErrorCode::kCancelled;
    ++(ending.ok() ? working_.ended : cancelled ? working_.cancelled : working_.failed);
    if (!ending.ok()) {
        const auto prompt = static_cast<int64_t>(active.request.prompt.size());
        const int64_t computed = active.said > 0 ? prompt : active.sequence.known;
        active.listener->OnSpent(std::min(computed, prompt), active.said);
    }
    runner_->SetIdle(true);
    active.listener->OnEnd(rest, ending);
    scheduler_->Remove(&active.sequence);
    ended_.push_back(active.sequence.id);
}

void Engine::ReapFinished() {
    for (const int64_t id : ended_) active_.erase(id);
    ended_.clear();
}

}  // namespace weft::engine
