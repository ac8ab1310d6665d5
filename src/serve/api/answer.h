// Answer: from what the engine says to what goes out over HTTP, for one request of one or more
// choices.
//
// The engine's thread feeds it token by token; it takes the text apart (reasoning, tool calls:
// chat/answer.h), has the dialect word it, and writes it to the exchange, or keeps it until
// all choices are complete; then it is worded, on another thread where that takes long. When the
// client leaves, all its choices are cancelled.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "chat/answer.h"
#include "chat/call_frame.h"
#include "chat/tool_types.h"
#include "engine/engine.h"
#include "serve/api/content_stops.h"
#include "serve/api/dialect.h"
#include "serve/http/server.h"

namespace weft::serve {

// One of the choices to be made.
struct ChoicePlan {
    engine::Request request;
    std::string given{};    // text that the answer begins with, before the model says anything
    std::string closing{};  // text that the answer ends with, if the model has said it all
    std::shared_ptr<const chat::CallFrame> demanded{};  // of the call that it is; null: of none
    std::string echo{};                                 // text that is shown before the answer
    bool echo_chances = false;  // the echo has log-probabilities: see request.prompt_logprobs
    // Texts that end the answer where the content has them: not reasoning, not a tool call.
    // (The engine matches request.stop against all text that the model writes.)
    std::vector<std::string> content_stops{};
    bool counts_prompt = true;  // false: another choice has the same prompt
};

class ResponseStore;

struct AnswerPlan {
    std::vector<ChoicePlan> choices;
    std::unique_ptr<Dialect> dialect;
    chat::AnswerFamily family = chat::AnswerFamily::kPlain;
    bool begins_in_reasoning = false;
    // The functions that the conversation offers; null: not known. See chat::AnswerParser.
    std::shared_ptr<const chat::ToolTypes> tools{};
    bool stream = false;
    bool one_call = false;      // the answer ends with its first tool call
    int64_t n = 1;              // choices of a prompt
    bool whole_calls = false;   // calls come whole, in a stream, too
    bool keeps_tokens = false;  // see ChoiceEnd::tokens
    std::string tenant{};       // whose constraints it uses
    // How much compiling them may cost; where one takes more, `put_off` is set, and the plan fails.
    CompileEffort effort = CompileEffort::kAll;
    bool put_off = false;
    std::string left_out{};  // what of its schemas is not kept; for the log
    std::string owner{};     // whose responses it may go on from, and where it is kept
    std::shared_ptr<ResponseStore> responses{};  // may be null
    Headers headers{};                           // of the answer, besides its type
    std::string prompt_name = "prompt";          // what a prompt that is too long came as
    // Not empty: the whole answer, as there is nothing to ask the engine for.
    std::string reply{};
    std::string reply_type = "application/json";
};

// Compiles a constraint of the request.
Result<grammar::Matcher> CompileFor(AnswerPlan& plan, const Served& served,
                                    const ConstraintText& constraint);

// What became of a request: for metrics and logs.
struct AnswerRecord {
    std::string request_id;
    std::string error;        // empty: it was answered
    bool cancelled = false;   // the error is that its client has left
    int64_t n = 1;            // answers that were asked for, to each prompt
    int64_t max_tokens = -1;  // of each of them; -1: to the end of the context
    Usage usage;
    std::vector<engine::Ending> endings;
    std::vector<float> gaps_s;  // between tokens of an answer
};

// Leaves what the log of requests says of it; before the answer is complete.
void NoteRecord(Exchange& exchange, const AnswerRecord& record);

class Answer : public std::enable_shared_from_this<Answer> {
  public:
    using Observer = std::function<void(const AnswerRecord&)>;
    // Has work done that the engine's thread must not wait for: on about so many bytes.
    using Later = std::function<void(size_t bytes, std::function<void()>)>;
    // Hands all choices to the engine. What is wrong with a request (too long, ...) is answered
    // before anything is begun. observer: called once, at the end, and gone then. Any thread.
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
    void OnText(size_t index, std::string_view text, const engine::SaidToken* token);
    void OnPrompt(size_t index, const engine::SaidToken& token);
    void Add(size_t index, chat::AnswerDelta delta);
    void KeepOneCall(size_t index, chat::AnswerDelta& delta);
    void CutAtStop(size_t index, chat::AnswerDelta& delta);
    void Conclude(size_t index);
    void Give(size_t index, const chat::AnswerDelta& delta);
    void GiveEcho(size_t index);
    chat::AnswerDelta Close(size_t index, bool complete);
    void AddSpent(size_t index, int64_t prompt_tokens, int64_t said_tokens);
    void EndChoice(size_t index, std::string_view rest, const Result<engine::Ending>& ending);
    size_t BytesToWord() const;
    bool Hold(size_t bytes);
    void Keep(State& state, const chat::AnswerDelta& delta);
    void Complete();
    void Say();
    void Observe();
    void Refuse(const ApiError& error);

    struct State {
        State(chat::AnswerParser p, std::vector<std::string> stops)
            : parser(std::move(p)), stop(std::move(stops)) {}
        chat::AnswerParser parser;
        ContentStops stop;
        Choice choice;
        std::vector<engine::SaidToken> pending;  // tokens whose text is not out yet
        std::optional<std::string> echo{};       // until its log-probabilities are known
        bool over = false;
        bool called = false;     // a tool, and the call is whole
        bool calling = false;    // some of a call is out
        bool concluded = false;  // the engine is to end it
        std::string written{};   // of a call that is demanded: all of it so far
        int64_t last_ns = 0;     // when the last token came
    };

    engine::Engine& engine_;
    std::shared_ptr<Exchange> exchange_;
    std::unique_ptr<Dialect> dialect_;
    const bool stream_, one_call_, keeps_tokens_;
    const Headers headers_;
    Observer observer_;
    const Later later_;
    std::mutex mutex_;  // of choices_, record_ and left_
    std::vector<State> choices_;
    std::vector<std::string> closings_;
    std::vector<std::shared_ptr<const chat::CallFrame>> demanded_;
    const std::shared_ptr<const chat::ToolTypes> tools_;
    std::vector<bool> wants_chances_, counts_prompt_, echo_chances_;
    AnswerRecord record_;
    size_t left_ = 0;
    size_t kept_bytes_ = 0, held_bytes_ = 0;  // of the answer so far, in JSON; see Exchange::Hold
    std::vector<std::atomic<int64_t>> ids_;
    std::atomic<bool> gone_{false};
};

}  // namespace weft::serve
