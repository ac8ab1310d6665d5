// What a monitoring system asks for: /metrics, in Prometheus' text format.
//
// Names, labels (model_name, engine) and bounds of buckets are vLLM's where they mean the same,
// older names of it included, with the prefix "weft:" (or "vllm:" and "vllm_" on request, so that
// dashboards made for vLLM work), and Weft's own beside them: ranks, recoveries, waits.
// Sources: Prometheus exposition format 0.0.4; vLLM, "Production Metrics" and its dashboards.
// Thread: any.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "serve/api/answer.h"

namespace weft::serve {

// What doesn't change while a server lives.
struct MetricsInfo {
    std::string model;
    int64_t context = 0;      // most tokens of a sequence
    int64_t page_tokens = 0;  // of the KV cache
    bool prefix_cache = true;
    std::string kv_type;
};

class Metrics {
  public:
    // prefix: "weft", "vllm" or "vllm_".
    Metrics(const std::string& prefix, const MetricsInfo& info);
    ~Metrics();
    // A request has ended. adapter: the name of the LoRA adapter that it used, or none.
    void Add(const AnswerRecord& record, const std::string& adapter = "");
    // A request was refused with that status.
    void AddRefused(int status);
    // All of it, with the engine's state of now.
    std::string Text(const engine::EngineStats& stats);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve
