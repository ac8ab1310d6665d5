// Joins the metrics of several processes into one text. Prometheus wants the lines of a metric
// together, with one HELP and one TYPE (exposition format 0.0.4). The samples differ by their label
// model_name.
#pragma once

#include <span>
#include <string>

namespace weft::serve {

std::string MergeMetrics(std::span<const std::string> texts);

}  // namespace weft::serve
