// What the server is at: /api/status, and whether it serves at all (/health, /ready).
// Thread: any.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "serve/api/fields.h"
#include "serve/api/served.h"
#include "serve/request_log.h"

namespace weft::serve {

// 200 as long as the process runs; also while it loads, recovers and stops.
inline constexpr std::string_view kLivePath = "/live";

// Paths that anybody may ask, without a key.
inline bool IsProbe(std::string_view path) {
    return path == kLivePath || path == "/health" || path == "/healthz" || path == "/v1/health" ||
           path == "/ready";
}

// Why no request would be answered now; nothing: they are.
std::optional<ApiError> WhyNotServing(const engine::EngineStats& stats);

// {"state", "ranks": [...], ...}: what the dashboard and a curious user see. errors: those that
// whoever asks may see. Each rank has its state as the cluster knows it at this moment
// (cluster/members.h); what it reports of itself is there once it was asked.
Json StatusJson(const Served& served, const std::vector<RequestError>& errors);

}  // namespace weft::serve
