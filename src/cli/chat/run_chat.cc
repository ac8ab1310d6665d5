#include "cli/chat/run_chat.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <thread>

#include "base/printable.h"
#include "base/start_thread.h"
#include "cli/bench/summary.h"
#include "cli/chat/answer_text.h"
#include "cli/chat/chat_model.h"
#include "cli/chat/chat_session.h"
#include "cli/models/model_words.h"
#include "cli/terminal/line_editor.h"
#include "cli/terminal/loading_line.h"
#include "cli/terminal/output.h"
#include "cli/terminal/private_file.h"
#include "engine/engine.h"
#include "engine/rank/cache_size.h"
#include "engine/sampling/sampler_defaults.h"

namespace weft::cli {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(50);

LineEditor* g_editor = nullptr;     // the editor of this process's only conversation
std::atomic<bool> g_reads{false};   // the editor waits for a line
std::atomic<bool> g_enough{false};  // stops the current answer

void OnEnough(int) {
    if (g_reads) {
        g_editor->Wake();
    } else {
        g_enough = true;
    }
}

// Shows an answer as it streams, and waits for its end.
class Shown final : public engine::Listener {
  public:
    Shown(const ChatPrompt& prompt, engine::Request& request, const tokenizer::Tokenizer& tokenizer)
        : answer_(prompt, request, tokenizer) {}
    void OnPromptRows(const engine::PromptProgress& progress) override {
        ShowProgress(progress, line_);
    }
    void OnToken(const engine::GeneratedToken& token, std::string_view text) override {
        Show(answer_.Push(text, token.chance.id));
        stopped_ = answer_.stopped();
    }
    void OnEnd(std::string_view rest, const Result<engine::Ending>& ending) override {
        Show(answer_.Push(rest));
        Show(answer_.Finish());
        const std::lock_guard lock(mutex_);
        if (!ending.ok()) error_ = ending.error();
        full_ = ending.ok() && ending->finish == "context";
        over_ = true;
        ended_.notify_all();
    }
    bool WaitFor(std::chrono::milliseconds time) {
        std::unique_lock lock(mutex_);
        return ended_.wait_for(lock, time, [&] { return over_; });
    }
    // Whether a stop string was found, so that the engine should end the answer.
    bool stopped() const { return stopped_; }
    // After the end of the answer: whether it has any text.
    bool any() const { return any_; }
    const std::string& content() const { return answer_.content(); }
    const Status& error() const { return error_; }
    // Whether the context was too small for the whole answer.
    bool full() const { return full_; }

  private:
    void Show(const std::string& text) {
        if (text.empty()) return;
        line_.Clear();
        StreamToken(ForTerminal(text));
        any_ = true;
    }

    AnswerText answer_;
    ProgressLine line_;
    std::mutex mutex_;
    std::condition_variable ended_;
    Status error_;
    std::atomic<bool> stopped_{false};
    bool over_ = false, full_ = false, any_ = false;
};

// The user's side of the conversation. It runs on its own thread, because the engine uses the main
// thread.
class Conversation {
  public:
    Conversation(engine::Engine& engine, const ChatModel& model, ChatSession& session,
                 const std::atomic<bool>* stop)
        : engine_(engine),
          model_(model),
          session_(session),
          editor_(stop, StateFile("run_history")) {}

    void Talk() {
        g_editor = &editor_;
        std::signal(SIGINT, OnEnough);
        for (std::optional<Entry> entry = Entered(); entry; entry = Entered()) {
            const ChatSession::Next next = session_.Take(entry->text, entry->quoted);
            if (next.act == ChatSession::Act::kEnd) break;
            if (!next.text.empty()) Stream(ForTerminal(next.text) + "\n");
            if (next.act == ChatSession::Act::kAsk && !Ask()) break;
        }
        engine_.Drain();
    }
    // Called on the engine's thread when no more answers will come.
    void End() { editor_.End(); }

  private:
    static constexpr std::string_view kMany = "\"\"\"";

    struct Entry {
        std::string text;
        bool quoted = false;  // the message was enclosed in kMany
    };
    // Reads a message or command of one or more lines; empty: the input has ended.
    std::optional<Entry> Entered() {
        std::string text;
        bool many = false;
        for (;;) {
            g_reads = true;
            LineEditor::Line line = editor_.Read(many || !text.empty() ? "... " : ">>> ");
            g_reads = false;
            if (line.how == LineEditor::How::kEnd) {
                Stream("\n");
                return std::nullopt;
            }
            if (line.how == LineEditor::How::kInterrupted) {
                Stream(text.empty() && !many ? "\nCtrl-D or /bye ends.\n" : "\n");
                text.clear();
                many = false;
                continue;
            }
            if (!many && text.empty() && line.text.starts_with(kMany)) {
                many = true;
                line.text.erase(0, kMany.size());
            }
            const bool closes = many && line.text.ends_with(kMany);
            const bool goes_on = !many && line.text.ends_with('\\');
            if (closes) line.text.resize(line.text.size() - kMany.size());
            if (goes_on) line.text.pop_back();
            text += line.text;
            if (closes || (!many && !goes_on)) return Entry{std::move(text), many};
            text += '\n';
        }
    }

    // Returns false if the engine has ended and answers no more questions.
    bool Ask() {
        engine::Request request = session_.NextRequest();
        auto prompt = model_.MakePrompt(session_.conversation());
        if (!prompt.ok()) return Refuse(prompt.error());
        request.prompt = prompt->tokens;
        const bool full = std::ssize(prompt->tokens) >= engine_.context();
        const auto shown = std::make_shared<Shown>(*prompt, request, engine_.tokenizer());
        g_enough = false;
        const auto id = engine_.Submit(std::move(request), shown);
        if (!id.ok()) return Refuse(id.error(), full);
        while (!shown->WaitFor(kLookEvery)) {
            if (g_enough.exchange(false)) engine_.Cancel(*id);
            if (shown->stopped()) engine_.StopEarly(*id);
        }
        Stream("\n\n");
        const bool stopped =
            shown->error().ok() ? false : shown->error().error().code == ErrorCode::kCancelled;
        if (!shown->error().ok() && !stopped) return Refuse(shown->error().error());
        shown->any() ? session_.NoteAnswer(shown->content()) : session_.ForgetQuestion();
        if (shown->full()) {
            PrintErr(
                "The answer is incomplete: the context of {} tokens is full. /drop continues "
                "without {}, /clear deletes the conversation.\n",
                engine_.context(), session_.has_older_turns() ? "the oldest turns" : "this turn");
        }
        return true;
    }

    // Reports a refused request. full: the conversation does not fit the context. Returns whether
    // the engine continues; if not, the engine itself reports the reason.
    bool Refuse(const Error& error, bool full = false) {
        if (engine_.counters().state == engine::EngineState::kOver) return false;
        full ? session_.KeepQuestion() : session_.ForgetQuestion();
        const bool older = full && session_.has_older_turns();
        PrintErr("weft: error: {}{}\n", Printable(error.message),
                 older ? ". /drop asks again without the oldest turns, /clear deletes the "
                         "conversation"
                       : "");
        return true;
    }

    engine::Engine& engine_;
    const ChatModel& model_;
    ChatSession& session_;
    LineEditor editor_;
};

Status Converse(engine::Engine& engine, const ChatModel& model, ChatSession& session,
                const std::atomic<bool>* stop) {
    Conversation conversation(engine, model, session, stop);
    std::thread user;
    WEFT_TRY(StartThread(user, [&] { conversation.Talk(); }));
    const Status ran = engine.Run();
    conversation.End();
    user.join();
    std::signal(SIGINT, SIG_DFL);
    g_editor = nullptr;
    if (!ran.ok()) return ran;
    if (stop != nullptr && stop->load()) {
        return MakeError(ErrorCode::kCancelled, "stopped by the user");
    }
    return {};
}

}  // namespace

Status RunChat(CommonFlags& flags, const ModelWords& words, const ChatOptions& said,
               const engine::DraftOptions& draft) {
    engine::Job& job = flags.job;
    const auto model = ChatModel::Load(words, said.variables);
    if (!model.ok()) {
        return MakeError(model.error().code, "{}. Give a prompt with -p TEXT or -f FILE.",
                         model.error().message);
    }
    engine::EngineOptions options = engine::OneAtATime(draft);
    options.prefix_cache = true;  // each question repeats the conversation
    WEFT_ASSIGN(const bool chosen, engine::SizeCache(job, options));
    std::unique_ptr<engine::Engine> engine;
    {
        const LoadingLine line(fmt::format("loading {}", job.model), flags.cluster);
        WEFT_ASSIGN(engine, engine::Engine::Start(flags.cluster, job, options));
    }
    PrintErr("{}, context {}{}. /help lists commands, Ctrl-C stops an answer, Ctrl-D ends.\n",
             job.model, engine->context(),
             chosen
                 ? fmt::format(" ({})", engine::WhyContext(engine->rank().job(), engine->hyper()))
                 : "");
    PrintErr("sampling: {} ({}; /set changes it)\n", engine::SamplingText(said.settings.sampler),
             said.sampling_by);
    ChatSession session(said.system, said.settings, said.seeded, model->SwitchesThinking(),
                        model->UsualThinking());
    WEFT_TRY(Converse(*engine, *model, session, flags.cluster.stop));
    WEFT_ASSIGN(const std::vector<engine::RankReport> reports, engine->Finish());
    return job.trace ? WriteTrace(flags.trace_file, reports) : Status();
}

}  // namespace weft::cli
