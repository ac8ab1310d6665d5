// Answers that need no model: lists, probes, metrics, the state.
#include "serve/pool/pool_impl.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <ctime>

#include "base/json.h"
#include "serve/api/dialect.h"
#include "serve/api/gate.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/openai/model_lists.h"
#include "serve/api/routes.h"
#include "serve/api/status.h"
#include "serve/pool/forward.h"
#include "serve/pool/merge_metrics.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;

constexpr size_t kMostShowBytes = 64 << 10;
const Headers kJsonHeaders{{"Content-Type", "application/json"}};

const char* StateName(PoolSchedule::State state) {
    switch (state) {
        case PoolSchedule::State::kUnloaded: return "unloaded";
        case PoolSchedule::State::kLoading: return "loading";
        case PoolSchedule::State::kLoaded: return "loaded";
        case PoolSchedule::State::kUnloading: return "unloading";
    }
    return "";
}

}  // namespace

bool PoolServer::Impl::AnswerGet(const std::shared_ptr<Exchange>& exchange) {
    const std::string& path = exchange->request().path;
    if (path == kLivePath) {
        SendAlive(*exchange);
    } else if (path == "/health" || path == "/healthz" || path == "/v1/health") {
        exchange->Send(200, kJsonHeaders, R"({"status":"ok"})");
    } else if (path == "/ready") {
        AnswerReady(*exchange);
    } else if (path == "/v1/models" || path == "/models") {
        exchange->Send(200, kJsonHeaders, Dump(ModelList()));
    } else if (path.starts_with(kModelsBelow)) {
        const std::string name = path.substr(kModelsBelow.size());
        const std::optional<size_t> model = ModelOf(name);
        if (!model || name.empty()) {
            SendError(*exchange, UnknownModel(name, served_));
        } else {
            Json entry = ModelJson(served_[*model], 0);
            entry["status"] = {{"value", StateName(schedule_.state(*model))}};
            exchange->Send(200, kJsonHeaders, Dump(entry));
        }
    } else if (path == "/metrics") {
        asio::co_spawn(context_, AnswerMetrics(exchange), Rethrow);
    } else if (path == "/api/status") {
        asio::co_spawn(context_, AnswerStatus(exchange), Rethrow);
    } else {
        return false;
    }
    return true;
}

// Ready: the first model has loaded once; another one loads when it is needed.
void PoolServer::Impl::AnswerReady(Exchange& exchange) {
    if (stop_ms_ > 0) {
        return SendError(exchange, {503, "The server is shutting down.", "", "draining"});
    }
    if (!first_loaded_) {
        return SendError(exchange, {503, "The model is loading.", "", "loading"});
    }
    exchange.Send(200, kJsonHeaders, R"({"status":"ready"})");
}

// As llama-server's router, each entry has a `status`.
Json PoolServer::Impl::ModelList() const {
    Json list = ModelsJson(served_);
    for (size_t i = 0; i < served_.size(); ++i) {
        list["data"][i]["status"] = {{"value", StateName(schedule_.state(i))}};
    }
    return list;
}

Json PoolServer::Impl::RunningList() const {
    Json list = Json::array();
    for (size_t i = 0; i < served_.size(); ++i) {
        if (schedule_.state(i) != State::kLoaded) continue;
        std::optional<int64_t> expires_s;
        if (const auto at_ms = schedule_.expires_ms(i)) {
            expires_s = std::time(nullptr) + (*at_ms - NowMs()) / 1000;
        }
        list.push_back(OllamaRunningEntries(served_[i], expires_s)[0]);
    }
    return {{"models", std::move(list)}};
}

// Routes of Ollama's API that need no loaded model.
void PoolServer::Impl::AnswerOllama(Exchange& exchange, const serve::Route& route) {
    if (route.path == "/api/tags") {
        Json list = Json::array();
        for (const Served& served : served_) list.push_back(OllamaTagEntries(served)[0]);
        return exchange.Send(200, kJsonHeaders, Dump({{"models", std::move(list)}}));
    }
    if (route.path == "/api/ps") return exchange.Send(200, kJsonHeaders, Dump(RunningList()));
    if (exchange.request().body.size() > kMostShowBytes) {
        return SendError(exchange,
                         {413, "The body is too large for this path.", "", "request_too_large"});
    }
    Json body = Json::object(), answer;
    std::optional<ApiError> error;
    if (route.method == "POST") error = ParseBody(exchange.request().body, body);
    if (error) return SendError(exchange, *error);
    if (route.reply == OllamaRefuse) {
        Served all;
        for (const Served& served : served_) {
            all.name += fmt::format("{}{}", all.name.empty() ? "" : ", ", served.name);
        }
        error = OllamaRefuse(body, all, answer);
    } else {
        PoolRequest ask;
        if (route.method == "POST") error = ReadPoolRequest(exchange.request(), ask);
        const Served& served = served_[ModelOf(ask.model).value_or(0)];
        if (!error && route.plan != nullptr) {
            AnswerPlan plan;
            error = route.plan(body, served, plan);
            if (!error) return exchange.Send(200, {{"Content-Type", plan.reply_type}}, plan.reply);
        } else if (!error) {
            error = route.reply(body, served, answer);
        }
    }
    if (error) return SendError(exchange, *error);
    exchange.Send(200, kJsonHeaders, Dump(answer));
}

// GET or DELETE of a stored response. Processes of models share --responses-dir; without it, each
// has its own responses.
asio::awaitable<void> PoolServer::Impl::AnswerStored(std::shared_ptr<Exchange> exchange,
                                                     std::string key) {
    bool asked = false, silent = false;
    for (size_t i = 0; i < served_.size(); ++i) {
        if (schedule_.state(i) != State::kLoaded) continue;
        asked = true;
        const auto answer = co_await Fetch(processes_[i].port, exchange->request(), "");
        silent = silent || !answer;
        if (!answer || answer->status == 404) continue;
        Headers headers = kJsonHeaders;
        if (answer->status == 429 || answer->status == 503) {
            headers.emplace_back("Retry-After", "1");
        }
        co_return exchange->Send(answer->status, std::move(headers), answer->body);
    }
    if (silent) {
        co_return SendError(*exchange, {503, "The process of a model did not answer. Try again.",
                                        "", "model_busy"});
    }
    if (!asked && !options_.front.responses_folder.empty()) {
        co_return Admit(std::move(exchange), std::move(key), {});
    }
    const std::string id(FindStored(exchange->request().path)->id);
    SendError(*exchange, {404, fmt::format("Response with id '{}' not found.", id.substr(0, 100)),
                          "", "not_found"});
}

asio::awaitable<void> PoolServer::Impl::AnswerMetrics(std::shared_ptr<Exchange> exchange) {
    std::vector<std::string> texts = {OwnMetrics()};
    for (size_t i = 0; i < served_.size(); ++i) {
        if (schedule_.state(i) != State::kLoaded) continue;
        auto text = co_await FetchText(processes_[i].port, exchange->request(), "/metrics");
        if (text) texts.push_back(std::move(*text));
    }
    exchange->Send(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                   MergeMetrics(texts));
}

std::string PoolServer::Impl::OwnMetrics() const {
    const std::string& word = options_.front.metrics_prefix;
    const std::string prefix = word.ends_with('_') ? word : word + ":";
    std::string out;
    const auto add = [&](const char* name, const char* type, const char* help, const auto& value) {
        out += fmt::format("# HELP {0}{1} {2}\n# TYPE {0}{1} {3}\n", prefix, name, help, type);
        for (size_t i = 0; i < served_.size(); ++i) {
            out += fmt::format("{}{}{{model_name={}}} {}\n", prefix, name, Quoted(served_[i].name),
                               value(i));
        }
    };
    add("model_loaded", "gauge", "Whether the model is loaded (1) or not (0).",
        [&](size_t i) { return schedule_.state(i) == State::kLoaded ? 1 : 0; });
    add("model_loads_total", "counter", "Loads of the model that began.",
        [&](size_t i) { return counts_[i].loads; });
    add("model_load_failures_total", "counter", "Loads of the model that failed.",
        [&](size_t i) { return counts_[i].failures; });
    add("model_load_seconds_total", "counter", "Seconds of the model's loads.",
        [&](size_t i) { return counts_[i].load_s; });
    add("model_requests_waiting", "gauge", "Requests that wait for the model to load.",
        [&](size_t i) { return schedule_.waiting(i); });
    add("model_requests_running", "gauge", "Requests that the model's process answers.",
        [&](size_t i) { return schedule_.running(i); });
    return out;
}

// The state of ?model=NAME or the model that was used last, and a list of all models.
asio::awaitable<void> PoolServer::Impl::AnswerStatus(std::shared_ptr<Exchange> exchange) {
    PoolRequest ask;
    ReadPoolRequest(exchange->request(), ask);
    size_t model = schedule_.last_used().value_or(0);
    if (!ask.model.empty()) model = ModelOf(ask.model).value_or(model);
    Json status;
    if (schedule_.state(model) == State::kLoaded) {
        const auto text =
            co_await FetchText(processes_[model].port, exchange->request(), "/api/status");
        if (text) status = OrderedJsonOrDiscarded(*text);
    }
    if (!status.is_object()) {
        status = {{"version", WEFT_VERSION},
                  {"model", served_[model].name},
                  {"context", served_[model].context},
                  {"state", stop_ms_ > 0 ? "draining" : "serving"},
                  {"ranks", Json::array()},
                  {"errors", Json::array()}};
    }
    Json models = Json::array();
    for (size_t i = 0; i < served_.size(); ++i) {
        uint64_t need = 0;
        for (const auto& [memory, bytes] : options_.needs[i]) need += bytes;
        models.push_back({{"name", served_[i].name},
                          {"state", StateName(schedule_.state(i))},
                          {"need_bytes", need},
                          {"running", schedule_.running(i)},
                          {"waiting", schedule_.waiting(i)},
                          {"loads", counts_[i].loads},
                          {"process", processes_[i].pid}});
    }
    status["models"] = std::move(models);
    exchange->Send(200, kJsonHeaders, Dump(status));
}

}  // namespace weft::serve
