// An SVG plot: lines over two logarithmic axes, with a grid, labels, and names at the lines' ends.
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

// Writes the SVG's text, or, for a path with .png, the picture that rsvg-convert draws (at twice
// the resolution). Errors: kUnsupported (rsvg-convert is missing), those of files.
Status WriteDrawing(const std::string& path, const std::string& svg);

// Plots the time (the bandwidth for `bw`) over the size, with one line per transport, algorithm and
// wire type. If pairs of ranks were measured, a line shows the slowest pair.
Plot NetPlot(const std::vector<fabric::NetReport>& reports);

}  // namespace weft::cli
