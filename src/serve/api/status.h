// Server state: /api/status, /health and /ready.
// Thread: any.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "serve/api/fields.h"
#include "serve/api/served.h"
#include "serve/request_log.h"

namespace weft::serve {

// Returns 200 while the process runs, also while it loads, recovers and stops.
inline constexpr std::string_view kLivePath = "/live";

// Paths that need no key.
inline bool IsProbe(std::string_view path) {
    return path == kLivePath || path == "/health" || path == "/healthz" || path == "/v1/health" ||
           path == "/ready";
}

// Returns the reason if requests cannot be answered now.
std::optional<ApiError> WhyNotServing(const engine::EngineStats& stats);

// {"state", "ranks": [...], ...} for the dashboard. errors: those that the client may see. A rank's
// `state` is the cluster's current view (cluster/members.h). The other fields of a rank come from
// its last report; they are absent until a first report has arrived.
Json StatusJson(const Served& served, const std::vector<RequestError>& errors);

}  // namespace weft::serve
