#include "sim/answers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "cluster/worker/job_kind.h"
#include "engine/engine.h"
#include "engine/rank/runner.h"

namespace weft::sim {
namespace {

constexpr int64_t kContext = 128;

engine::Job JobOf(const std::string& model) {
    engine::Job job;
    job.model = model;
    job.threads = 1;
    job.ctx = kContext;
    job.kv_tokens = 3 * kContext;
    job.chunk = 16;
    job.net_table = fabric::NetTable::kOff;
    return job;
}

engine::Request RequestOf(int number) {
    engine::Request request;
    for (int i = 0; i < 3 + 7 * number; ++i)
        request.prompt.push_back(1 + (i * 5 + number * 3) % 40);
    request.max_tokens = 4 + 5 * number;
    request.ignore_eos = true;
    request.sampler.seed = static_cast<uint64_t>(number) + 1;
    if (number % 2 == 1) request.sampler.temperature = 0.9F;
    return request;
}

std::string TextOf(const std::vector<int32_t>& tokens) {
    return fmt::format("{}", fmt::join(tokens, " "));
}

// Events of one request.
class Answer final : public engine::Listener {
  public:
    explicit Answer(std::function<void()> on_end) : on_end_(std::move(on_end)) {}
    void OnToken(const engine::GeneratedToken& token, std::string_view) override {
        ++count_;
        if (!tokens_.empty()) tokens_ += ' ';
        tokens_ += std::to_string(token.chance.id);
    }
    void OnEnd(std::string_view, const Result<engine::Ending>& ending) override {
        ++ends_;
        if (!ending.ok()) error_ = ending.error().message;
        on_end_();
    }
    // "", or what is wrong. undisturbed: the whole answer.
    std::string Check(const std::string& undisturbed, const std::string& job_error) const {
        if (ends_ != 1) return fmt::format("a request ended {} times", ends_);
        if (!undisturbed.starts_with(tokens_)) {
            return fmt::format("an answer is {}, undisturbed it is {}", tokens_, undisturbed);
        }
        if (error_.empty() && tokens_ != undisturbed) return "an answer lacks its end";
        if (!error_.empty() && job_error.empty())
            return "a request failed, the job did not: " + error_;
        return "";
    }
    bool whole() const { return ends_ == 1 && error_.empty(); }
    int64_t count() const { return count_; }

  private:
    std::function<void()> on_end_;
    std::string tokens_, error_;
    int ends_ = 0;
    int64_t count_ = 0;
};

// The requests of one job. (A killed process leaves its job's state as it was.)
struct Requests {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<Answer>> answers;
    int ended = 0;
    bool over = false;  // the engine has ended
};

// A client: sends requests over time, and goes when all have ended.
void Send(engine::Engine& engine, Requests& requests, int count, int64_t pace_ns) {
    for (int i = 0; i < count; ++i) {
        auto answer = std::make_shared<Answer>([&requests] {
            const std::lock_guard lock(requests.mutex);
            ++requests.ended;
            requests.changed.notify_all();
        });
        if (!engine.Submit(RequestOf(i), answer).ok()) break;  // the job has ended
        {
            const std::lock_guard lock(requests.mutex);
            requests.answers.push_back(answer);
        }
        if (pace_ns > 0) Kernel::Current()->Sleep(pace_ns);
    }
    std::unique_lock lock(requests.mutex);
    requests.changed.wait(lock, [&] {
        return requests.over || requests.ended == static_cast<int>(requests.answers.size());
    });
    lock.unlock();
    engine.Drain();
}

class Answers final : public Workload {
  public:
    Answers(const Plan& plan, std::string model, const std::vector<std::string>& undisturbed)
        : plan_(plan), model_(std::move(model)), undisturbed_(undisturbed) {}

    Status RunRoot(const cluster::ClusterOptions& options, bool last, Outcome& outcome) override {
        engine::Job job = JobOf(model_);
        job.tp = plan_.tensor ? plan_.hosts : 1;
        job.pp = plan_.tensor ? 1 : plan_.hosts;
        job.feed = plan_.feed;
        WEFT_ASSIGN(const auto engine, engine::Engine::Start(options, job, {.max_seqs = 3}));
        const auto requests = std::make_shared<Requests>();
        requests_ = requests;
        outcome.steps = 1;  // the engine serves
        std::thread client([&] { Send(*engine, *requests, last ? 1 : kRequests, plan_.pace_ns); });
        Status ran = engine->Run();
        {
            const std::lock_guard lock(requests->mutex);
            requests->over = true;
            requests->changed.notify_all();
        }
        client.join();
        outcome.complete = ran.ok() && std::ranges::all_of(requests->answers, [](const auto& a) {
                               return a->whole();
                           });
        if (!ran.ok()) return ran;
        const auto finished = engine->Finish();
        return finished.ok() ? Status() : Status(finished.error());
    }

    Status RunRank(cluster::Cluster& cluster) override {
        static constexpr const cluster::JobKind* kKinds[] = {&engine::kModelJob};
        return cluster::RunJob(cluster, kKinds);
    }

    std::string Check(const Outcome& outcome) const override {
        if (!outcome.ended || requests_ == nullptr) return "";  // killed, or it never served
        for (size_t i = 0; i < requests_->answers.size(); ++i) {
            const std::string wrong = requests_->answers[i]->Check(undisturbed_[i], outcome.error);
            if (!wrong.empty()) return fmt::format("request {}: {}", i, wrong);
        }
        return "";
    }

  private:
    const Plan plan_;
    const std::string model_;
    const std::vector<std::string>& undisturbed_;
    std::shared_ptr<Requests> requests_;
};

}  // namespace

std::vector<std::string> UndisturbedAnswers(const std::string& model) {
    std::vector<std::string> answers;
    auto engine = engine::Engine::Start({}, JobOf(model), engine::OneAtATime({})).value();
    for (int i = 0; i < kRequests; ++i) {
        answers.push_back(TextOf(engine->Generate(RequestOf(i)).value().tokens));
    }
    [[maybe_unused]] const auto finished = engine->Finish();
    return answers;
}

std::unique_ptr<Workload> MakeAnswers(const Plan& plan, const std::string& model,
                                      const std::vector<std::string>& undisturbed) {
    return std::make_unique<Answers>(plan, model, undisturbed);
}

}  // namespace weft::sim
