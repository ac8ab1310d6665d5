// What a monitoring system asks for: /metrics, in Prometheus' text format.
//
// Names are vLLM's where they mean the same, with the prefix "weft:" (or "vllm:" on request, so
// that dashboards made for vLLM work), and Weft's own beside them: ranks, recoveries, waits.
// Sources: Prometheus exposition format 0.0.4; vLLM, "Production Metrics".
// Thread: any.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "serve/api/answer.h"

namespace weft::serve {

class Metrics {
  public:
    // prefix: "weft" or "vllm".
    Metrics(const std::string& prefix, const std::string& model);
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
