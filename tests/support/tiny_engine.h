// An engine that serves a tiny model of one layer.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"
#include "support/tiny_gguf.h"

namespace weft::support {

// path: of the model's file, which is written first.
inline std::unique_ptr<engine::Engine> StartTinyEngine(const std::string& path) {
    TinyFile file{.hyper = OddHyper("llama")};
    file.hyper.layers = 1;
    WriteTinyGguf(path, file);
    engine::Job job;
    job.model = path;
    job.threads = 1;
    job.ctx = 256;
    job.self_test = false;
    return engine::Engine::Start({}, job, {4, true}).value();
}

}  // namespace weft::support
