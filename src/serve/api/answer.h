// Answer: turns the engine's tokens for one request, of one or more choices, into its HTTP
// response.
//
// The engine's thread calls it token by token. It parses the text into content, reasoning and tool
// calls (chat/answer.h) and passes them to the dialect. A streamed answer is written to the
// exchange at once. Any other answer is collected until all choices are complete. If formatting an
// answer, or a part or the end of a stream, takes long, another thread does so. When the client
// disconnects, all choices are cancelled.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "chat/answer.h"
#include "chat/call_frame.h"
#include "chat/tool_types.h"
#include "engine/engine.h"
#include "serve/api/content_stops.h"
#include "serve/api/dialect.h"
#include "serve/api/llama/slots.h"
#include "serve/api/members.h"
#include "serve/http/server.h"

namespace weft::serve {

// One choice to generate.
struct ChoicePlan {
    engine::Request request;
    std::string given{};    // text that begins the answer before the first generated token
    std::string closing{};  // text that ends the answer if generation completes
    std::shared_ptr<const chat::CallFrame> demanded{};  // frame of the forced tool call; null: none
    std::string echo{};                                 // prompt text shown before the answer
    bool echo_logprobs = false;  // the echo has log-probabilities, see request.prompt_logprobs
    // Stop strings that are matched in the content only, not in reasoning or tool calls. (The
    // engine matches request.stop against all generated text.)
    std::vector<std::string> content_stops{};
    bool counts_prompt = true;  // false: another choice already counts the same prompt
};

class ResponseStore;

struct AnswerPlan {
    std::vector<ChoicePlan> choices;
    std::unique_ptr<Dialect> dialect;
    chat::ToolCallFormat family = chat::ToolCallFormat::kPlain;
    bool begins_in_reasoning = false;
    bool verbatim = false;         // see chat::AnswerParser
    chat::TokenReading reading{};  // how the parser reads the tokens
    // Text of the turn before the answer; the parser reads it, and the client does not get it.
    std::string begun{};
    // Functions offered in the conversation; null: unknown. See chat::AnswerParser.
    std::shared_ptr<const chat::ToolTypes> tools{};
    bool stream = false;
    bool one_call = false;         // the answer ends with its first tool call
    bool hides_reasoning = false;  // the client does not get the reasoning, nor its tokens
    bool content_tokens = false;   // the token count of a whole answer covers the content only
    int64_t n = 1;                 // choices per prompt
    bool whole_calls = false;      // a stream sends each call in one piece
    bool keeps_tokens = false;     // see ChoiceEnd::tokens
    bool timings = false;          // the dialect gets the progress of each part of a stream
    bool prompt_progress = false;  // a stream shows how far its prompt is computed
    std::string tenant{};          // cache partition for compiled constraints
    // Most effort allowed for compiling constraints. If more is needed, planning fails with
    // `deferred`.
    CompileEffort effort = CompileEffort::kAll;
    bool deferred = false;
    LeftMembers left{};  // with schema keywords that are not enforced; for the log
    // Sentences about parts of the request that have no effect; the log gets each of them once.
    std::set<std::string> notices{};
    std::string owner{};  // owner of the stored responses that it reads and writes
    std::shared_ptr<ResponseStore> responses{};  // may be null
    bool ends_slowly = false;                    // the end of the answer writes a file
    size_t kept_bytes = 0;  // memory that is kept until then and is not part of the request's body
    Headers headers{};      // response headers besides Content-Type
    std::string prompt_name = "prompt";      // field name of the prompt, for errors
    std::shared_ptr<SlotTable::Use> slot{};  // remembers the text of the first choice
    // Not empty: the complete response body; the engine is not called.
    std::string reply{};
    std::string reply_type = "application/json";
};

// Reads which reports a stream has beside its text: llama-server's timings_per_token and
// return_progress.
void ReadReports(Fields& fields, AnswerPlan& plan);

// Compiles a constraint within plan.effort. Sets plan.deferred if more effort is needed.
Result<grammar::Matcher> CompileFor(AnswerPlan& plan, const Served& served,
                                    const ConstraintText& constraint);

// Compiles the constraint of a text without a conversation into `request`; none if its kind is
// empty.
std::optional<ApiError> ConstrainText(AnswerPlan& plan, const Served& served,
                                      const ConstraintText& constraint, engine::Request& request);

// Why the engine refuses the request; before copies of it are made. prompt_name: see AnswerPlan.
std::optional<ApiError> WhyNotRun(const engine::Engine& engine, const engine::Request& request,
                                  const std::string& prompt_name);

// Sends a stream that only has an error (Dialect::StreamsRefusal).
void StreamRefusal(Exchange& exchange, Dialect& dialect, Headers headers, const ApiError& error);

// Outcome of a request, for metrics and logs.
struct AnswerRecord {
    std::string request_id;
    std::string error;        // empty: the request succeeded
    bool cancelled = false;   // the error is a client disconnect
    int64_t n = 1;            // choices per prompt
    int64_t max_tokens = -1;  // limit per choice; -1: up to the end of the context
    Usage usage;
    std::vector<engine::Ending> endings;
    std::vector<float> gaps_s;  // time between consecutive tokens of a choice
};

// Copies the record's figures to the exchange's log note. Call before the answer completes.
void NoteRecord(Exchange& exchange, const AnswerRecord& record);

class Answer : public std::enable_shared_from_this<Answer> {
  public:
    using Observer = std::function<void(const AnswerRecord&)>;
    // Runs `work` of about `bytes` bytes on another thread.
    using Later = std::function<void(size_t bytes, std::function<void()>)>;
    // Submits all choices to the engine. Invalid requests (prompt too long, ...) get an error
    // response before any choice starts. observer: called once, at the end, then released. Thread:
    // any.
    static void Start(engine::Engine& engine, std::shared_ptr<Exchange> exchange, AnswerPlan plan,
                      Observer observer, Later later);

  private:
    class ChoiceListener;
    struct State;
    Answer(engine::Engine& engine, std::shared_ptr<Exchange> exchange, AnswerPlan& plan,
           Observer observer, Later later);
    void Submit(std::vector<ChoicePlan> plans);
    void CancelAll();
    void Write(std::string text);
    std::string Filling();
    void OnPromptRows(size_t index, const PromptProgress& progress);
    void OnPrefilled(size_t index, const Usage& usage);
    void OnText(size_t index, std::string_view text, const engine::GeneratedToken* token);
    void OnPrompt(size_t index, const engine::GeneratedToken& token);
    void Add(size_t index, chat::AnswerDelta delta);
    void KeepOneCall(size_t index, chat::AnswerDelta& delta);
    void CutAtStop(size_t index, chat::AnswerDelta& delta);
    void StopEarly(size_t index);
    void Give(size_t index, const chat::AnswerDelta& delta);
    void Stream(size_t index, const chat::AnswerDelta& delta,
                std::span<const engine::GeneratedToken> tokens);
    void StreamEnd(size_t index);
    bool IsSoon(size_t bytes) const;
    void FormatLater(size_t bytes, std::function<void()> work);
    std::optional<Usage> ProgressOf(size_t index) const;
    void Format(size_t index, const chat::AnswerDelta& delta,
                std::span<const engine::GeneratedToken> tokens,
                const std::optional<Usage>& progress);
    void EmitEcho(size_t index);
    chat::AnswerDelta Close(size_t index, const engine::Ending& ending);
    void AddUsage(size_t index, int64_t prompt_tokens, int64_t generated_tokens);
    void EndChoice(size_t index, std::string_view rest, const Result<engine::Ending>& ending);
    size_t BytesToFormat() const;
    void AddPending(State& state, const engine::GeneratedToken& token);
    void HoldPending();
    bool Hold(size_t bytes);
    void Fail(const ApiError& error);
    void Keep(State& state, const chat::AnswerDelta& delta);
    void Complete();
    void Say();
    void Observe();
    void Refuse(const ApiError& error);

    struct State {
        State(chat::AnswerParser p, const ChoicePlan& plan)
            : parser(std::move(p)),
              stop(plan.content_stops, plan.request.includes_stop),
              min_tokens(plan.request.min_tokens),
              prompt_tokens(std::ssize(plan.request.prompt)) {}
        chat::AnswerParser parser;
        ContentStops stop;
        const int64_t min_tokens;  // see engine::Request
        const int64_t prompt_tokens;
        int64_t said = 0;  // tokens
        Choice choice;
        std::vector<engine::GeneratedToken> pending;  // tokens whose text has not been sent
        std::optional<std::string> echo{};            // held until its log-probabilities are known
        bool begun = false;                           // rows of the prompt were computed
        bool over = false;
        bool called = false;     // a complete tool call was sent
        bool calling = false;    // part of a tool call was sent
        bool in_call = false;    // the last call that was sent is not complete
        bool concluded = false;  // the engine was requested to end the choice
        std::string written{};   // forced call: its text so far
        int64_t last_ns = 0;     // arrival time of the last token
        Usage prefilled{};       // when the first token arrived
        int64_t prefilled_ns = 0;
    };

    engine::Engine& engine_;
    std::shared_ptr<Exchange> exchange_;
    std::unique_ptr<Dialect> dialect_;
    const bool stream_, one_call_, hides_reasoning_, content_tokens_, keeps_tokens_, ends_slowly_,
        timings_, prompt_progress_;
    const Headers headers_;
    std::shared_ptr<SlotTable::Use> slot_;  // until the first choice is complete
    Observer observer_;
    const Later later_;
    std::mutex mutex_;  // guards choices_, record_ and left_
    std::vector<State> choices_;
    std::vector<std::string> closings_;
    std::vector<std::shared_ptr<const chat::CallFrame>> demanded_;
    const std::shared_ptr<const chat::ToolTypes> tools_;
    std::vector<bool> wants_logprobs_, counts_prompt_, echo_logprobs_;
    AnswerRecord record_;
    ApiError failure_;            // if record_ has an error
    size_t left_ = 0, last_ = 0;  // choices that run; the choice that ended last
    // Parts of the answer that another thread formats, the running one first.
    std::deque<std::function<void()>> waiting_;
    size_t kept_bytes_ = 0, held_bytes_ = 0;  // JSON size of the answer so far; see Exchange::Hold
    size_t pending_bytes_ = 0;  // JSON size of all State::pending, and of a stream's echo
    std::vector<std::atomic<int64_t>> ids_;
    std::atomic<bool> gone_{false};
};

}  // namespace weft::serve
