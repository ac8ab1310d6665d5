#include "train/log/mlflow_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/json.h"
#include "base/printable.h"
#include "hub/http.h"

namespace weft::train {
namespace {

constexpr size_t kMostAnswerBytes = 1 << 20, kShownBytes = 200;
// Limits of log-batch.
constexpr size_t kMostMetrics = 1000, kMostParameters = 100, kMostValueBytes = 500;

std::string ServerUrl() {
    std::string url = EnvironmentText("MLFLOW_TRACKING_URI");
    while (url.ends_with('/')) url.pop_back();
    return url;
}

int64_t NowMs() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

// The text at a path of a server's answer; "": the answer has no text there.
std::string TextAt(const nlohmann::json& answer, const char* path) {
    const nlohmann::json::json_pointer at(path);
    return answer.contains(at) && answer[at].is_string() ? answer[at].get<std::string>() : "";
}

}  // namespace

Status MlflowRun::Check() {
    const std::string url = ServerUrl();
    if (url.starts_with("http://") || url.starts_with("https://")) return {};
    return MakeError(ErrorCode::kUsage,
                     "--report-to mlflow: MLFLOW_TRACKING_URI is '{}'; expected the URL of a "
                     "tracking server, such as http://localhost:5000",
                     url);
}

MlflowRun::MlflowRun(std::string name, nlohmann::json settings)
    : name_(std::move(name)),
      server_(ServerUrl()),
      settings_(std::move(settings)),
      curl_(
          [this](std::string_view part) {
              answer_ += part;
              return answer_.size() <= kMostAnswerBytes;
          },
          kConnectMs, ""),
      run_(EnvironmentText("MLFLOW_RUN_ID")) {}

Result<nlohmann::json> MlflowRun::Call(const std::string& path, const Json& body, bool missing) {
    const std::string url = server_ + "/api/2.0/mlflow/" + path;
    const std::string text =
        body.is_null() ? "" : body.dump(-1, ' ', false, Json::error_handler_t::replace);
    answer_.clear();
    curl_.SetUrl(url);
    curl_.Set(CURLOPT_TIMEOUT_MS, static_cast<long>(kRequestMs));
    if (body.is_null()) {
        curl_.Set(CURLOPT_HTTPGET, 1L);
    } else {
        curl_.AddHeader("Content-Type: application/json");
        curl_.Set(CURLOPT_POST, 1L);
        curl_.Set(CURLOPT_POSTFIELDSIZE, static_cast<long>(text.size()));
        curl_.Set(CURLOPT_POSTFIELDS, text.c_str());
    }
    const std::string token = EnvironmentText("MLFLOW_TRACKING_TOKEN");
    const std::string user = EnvironmentText("MLFLOW_TRACKING_USERNAME");
    if (!token.empty()) curl_.AddHeader("Authorization: Bearer " + token);
    if (token.empty() && !user.empty()) {
        curl_.Set(CURLOPT_USERNAME, user.c_str());
        curl_.Set(CURLOPT_PASSWORD, EnvironmentText("MLFLOW_TRACKING_PASSWORD").c_str());
    }
    const CURLcode code = curl_easy_perform(curl_.get());
    if (code != CURLE_OK) {
        return MakeError(code == CURLE_OPERATION_TIMEDOUT ? ErrorCode::kTimeout : ErrorCode::kIo,
                         "--report-to mlflow: {}: {}", url, curl_.Reason(code));
    }
    const long status = curl_.Status();
    if (missing && status == 404) return Json();
    if (status != 200) {
        return MakeError(ErrorCode::kIo, "--report-to mlflow: {}: status {}: {}", url, status,
                         Printable(std::string_view(answer_).substr(0, kShownBytes)));
    }
    Json answer = JsonOrDiscarded(answer_);
    if (answer.is_object()) return answer;
    return MakeError(ErrorCode::kCorrupt, "--report-to mlflow: {}: the answer is not a JSON object",
                     url);
}

Result<std::string> MlflowRun::FindExperiment() {
    std::string name = EnvironmentText("MLFLOW_EXPERIMENT_NAME");
    if (name.empty()) name = "Default";
    WEFT_ASSIGN(
        Json found,
        Call("experiments/get-by-name?experiment_name=" + hub::UrlText(name, false), Json(), true));
    if (!found.is_null()) return TextAt(found, "/experiment/experiment_id");
    WEFT_ASSIGN(const Json made, Call("experiments/create", {{"name", name}}));
    return TextAt(made, "/experiment_id");
}

Status MlflowRun::Begin() {
    if (begun_) return {};
    if (run_.empty()) {
        WEFT_ASSIGN(const std::string experiment, FindExperiment());
        Json ask = {{"experiment_id", experiment}, {"start_time", NowMs()}};
        if (!name_.empty()) ask["run_name"] = name_;
        WEFT_ASSIGN(const Json made, Call("runs/create", ask));
        run_ = TextAt(made, "/run/info/run_id");
        if (run_.empty()) {
            return MakeError(ErrorCode::kCorrupt,
                             "--report-to mlflow: {}: the new run has no run_id", server_);
        }
        WEFT_TRY(LogParameters());
    }
    begun_ = true;
    return {};
}

// (A parameter cannot change, so a continued run keeps its own.)
Status MlflowRun::LogParameters() {
    Json some = Json::array();
    const auto send = [&]() -> Status {
        const Json body = {{"run_id", run_}, {"params", std::exchange(some, Json::array())}};
        const auto sent = Call("runs/log-batch", body);
        return sent.ok() ? Status() : Status(sent.error());
    };
    for (const auto& [key, value] : settings_.items()) {
        const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        if (text.empty() || text.size() > kMostValueBytes) continue;
        some.push_back({{"key", key}, {"value", text}});
        if (some.size() == kMostParameters) WEFT_TRY(send());
    }
    return some.empty() ? Status() : send();
}

Status MlflowRun::Add(const LogRow& row) {
    const int64_t now = NowMs();
    for (const auto& [key, value] : row.line.items()) {
        if (key == "step" || !value.is_number() || !std::isfinite(value.get<double>())) continue;
        metrics_.push_back(
            {{"key", key}, {"value", value.get<double>()}, {"timestamp", now}, {"step", row.step}});
    }
    while (metrics_.size() > kMostWaiting) metrics_.erase(0);
    return metrics_.size() < kMostMetrics ? Status() : Flush();
}

Status MlflowRun::Flush() {
    WEFT_TRY(Begin());
    while (!metrics_.empty()) {
        const size_t count = std::min(metrics_.size(), kMostMetrics);
        const auto end = metrics_.begin() + static_cast<std::ptrdiff_t>(count);
        const auto sent =
            Call("runs/log-batch", {{"run_id", run_}, {"metrics", Json(metrics_.begin(), end)}});
        if (!sent.ok()) return sent.error();
        metrics_.erase(metrics_.begin(), end);
    }
    return {};
}

Status MlflowRun::End(bool done) {
    WEFT_TRY(Flush());
    const auto sent =
        Call("runs/update",
             {{"run_id", run_}, {"status", done ? "FINISHED" : "FAILED"}, {"end_time", NowMs()}});
    return sent.ok() ? Status() : Status(sent.error());
}

}  // namespace weft::train
