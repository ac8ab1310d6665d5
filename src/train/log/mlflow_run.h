// A run on an MLflow tracking server, over its REST API 2.0
// (https://mlflow.org/docs/latest/rest-api.html).
//
// As for MLflow's own clients, MLFLOW_TRACKING_URI names the server (http or https),
// MLFLOW_EXPERIMENT_NAME the experiment ("Default"), and MLFLOW_RUN_ID a run to continue;
// MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, authenticate.
//
// A request takes at most kRequestMs. Metrics that the server does not accept wait for the next
// request, at most kMostWaiting. Errors: kIo, kTimeout, kCorrupt (an answer), with the URL.
#pragma once

#include <cstdint>
#include <string>

#include "hub/curl_handle.h"
#include "train/log/log_writer.h"

namespace weft::train {

class MlflowRun final : public LogWriter {
  public:
    static constexpr int64_t kConnectMs = 3000, kRequestMs = 10'000;
    static constexpr size_t kMostWaiting = 200'000;

    // Checks the environment. Errors: kUsage.
    static Status Check();
    // name: of the run. settings: the run's parameters, an object.
    MlflowRun(std::string name, nlohmann::json settings);
    Status Add(const LogRow& row) override;
    Status Flush() override;
    Status End(bool done) override;

  private:
    using Json = nlohmann::json;
    Status Begin();
    Status LogParameters();
    Result<std::string> FindExperiment();
    // The answer to a POST, or without a body to a GET. missing: 404 gives null.
    Result<Json> Call(const std::string& path, const Json& body, bool missing = false);

    const std::string name_, server_;
    const Json settings_;
    std::string answer_;
    hub::CurlHandle curl_;
    std::string run_;  // empty: not begun
    bool begun_ = false;
    Json metrics_ = Json::array();
};

}  // namespace weft::train
