// /metrics in Prometheus's text format.
//
// Metrics that vLLM has, too, use vLLM's names (including its older ones), labels (model_name,
// engine) and bucket bounds, with the prefix "weft:". The prefix "vllm:" or "vllm_" makes
// dashboards for vLLM work. Weft adds its own metrics: ranks, recoveries, waits. Sources:
// Prometheus exposition format 0.0.4; vLLM, "Production Metrics" and its dashboards. Thread: any.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "serve/api/answer.h"

namespace weft::serve {

// Constant while the server lives.
struct MetricsInfo {
    std::string model;
    int64_t context = 0;      // most tokens of a sequence
    int64_t page_tokens = 0;  // page size of the KV cache
    bool prefix_cache = true;
    std::string kv_type;
};

class Metrics {
  public:
    // prefix: "weft", "vllm" or "vllm_".
    Metrics(const std::string& prefix, const MetricsInfo& info);
    ~Metrics();
    // Records a finished request. adapter: name of the request's LoRA adapter; "": none.
    void Add(const AnswerRecord& record, const std::string& adapter = "");
    // Records a refused request.
    void AddRefused(int status);
    // The full text, with the engine's current state.
    std::string Text(const engine::EngineStats& stats);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve
