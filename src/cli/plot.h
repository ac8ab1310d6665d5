// A plot as SVG: lines over two logarithmic axes, with a grid, labels, and names at the lines'
// ends.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "fabric/job.h"

namespace weft::cli {

struct Curve {
    std::string name;
    std::vector<std::pair<double, double>> points;  // ascending x; both above 0
};

struct Plot {
    std::string title, x_label, y_label;
    bool x_is_bytes = false;  // ticks at powers of 2, with K and M
    std::vector<Curve> curves;
};

std::string PlotSvg(const Plot& plot);

// Writes an SVG's text, or where the path ends with .png what rsvg-convert draws of it (twice as
// many pixels). Errors: kUnsupported (it is not there), those of files.
Status WriteDrawing(const std::string& path, const std::string& svg);

// Time (bandwidth for `bw`) over size, a line for each transport, algorithm, wire type; of pairs,
// the slowest.
Plot NetPlot(const std::vector<fabric::NetReport>& reports);

}  // namespace weft::cli
