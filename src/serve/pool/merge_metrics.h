// Joins the metrics of several processes into one text. The lines of a metric are consecutive, with
// one HELP and one TYPE, as Prometheus requires (exposition format 0.0.4). The label model_name
// distinguishes the samples of the processes.
#pragma once

#include <span>
#include <string>

namespace weft::serve {

std::string MergeMetrics(std::span<const std::string> texts);

}  // namespace weft::serve
