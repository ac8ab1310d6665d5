// weft plan --plot: speed over machines and contexts, memory of ranks; as a file or as text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/plan.h"
#include "cli/plot.h"

namespace weft::cli {
namespace {

constexpr double kPanelWidth = 860, kPanelHeight = 520;
constexpr int kBarColumns = 48;
constexpr size_t kMostBars = 64;

std::vector<std::pair<double, double>> PointsOf(const std::vector<plan::ScalingPoint>& points) {
    std::vector<std::pair<double, double>> pairs;
    for (const plan::ScalingPoint& point : points) pairs.emplace_back(point.x, point.tok_s);
    return pairs;
}

// A drawing of its own becomes a panel of a larger one.
std::string Panel(const std::string& svg, double y) {
    return fmt::format("<svg y=\"{:g}\" {}", y, svg.substr(svg.find("<svg ") + 5));
}

// Bars of weights, KV cache and work, one beside the other for each rank; a line is the room.
std::string MemorySvg(const plan::Prediction& best) {
    constexpr double kLeft = 76, kTop = 56, kWide = 600, kHigh = 404;
    constexpr const char* kColours[] = {"#0b62a4", "#d1540f", "#2a8c4a"};
    const size_t ranks = std::min(best.memory.size(), kMostBars);
    double most = 0;
    for (const plan::MemoryUse& use : best.memory) most = std::max({most, use.total(), use.room});
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
        "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
        "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#fff\"/>\n"
        "<text x=\"76\" y=\"30\" font-size=\"16\" font-weight=\"bold\">Memory by rank, GB: {2}"
        "</text>\n",
        kPanelWidth, kPanelHeight, best.name);
    const double step = kWide / static_cast<double>(ranks);
    for (size_t i = 0; i < ranks; ++i) {
        const plan::MemoryUse& use = best.memory[i];
        const double x = kLeft + static_cast<double>(i) * step;
        double y = kTop + kHigh;
        const uint64_t parts[] = {use.weights, use.cache, use.work + use.process};
        for (size_t part = 0; part < std::size(parts); ++part) {
            const double high = static_cast<double>(parts[part]) / most * kHigh;
            y -= high;
            svg += fmt::format(
                "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                "fill=\"{}\"/>\n",
                x, y, step * 0.8, high, kColours[part]);
        }
        const double room = kTop + kHigh * (1 - use.room / most);
        svg += fmt::format(
            "<line x1=\"{0:.1f}\" y1=\"{2:.1f}\" x2=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#222\" "
            "stroke-width=\"2\"/>\n<text x=\"{0:.1f}\" y=\"{3:.1f}\">{4}: {5:.1f}</text>\n",
            x, x + step * 0.8, room, kTop + kHigh + 18, use.rank, use.total() * 1e-9);
    }
    constexpr const char* kNames[] = {"weights", "KV cache", "work"};
    for (size_t part = 0; part < std::size(kNames); ++part) {
        svg +=
            fmt::format("<text x=\"{:g}\" y=\"{:g}\" fill=\"{}\">{}</text>\n", kLeft + kWide + 12,
                        kTop + 17 * static_cast<double>(part + 1), kColours[part], kNames[part]);
    }
    return svg + fmt::format("<text x=\"{:g}\" y=\"{:g}\">line: its memory</text>\n</svg>\n",
                             kLeft + kWide + 12, kTop + 17 * 4.0);
}

std::string PlanSvg(const PlanFlags& flags, const plan::Scaling& scaling,
                    const plan::Prediction& best) {
    Plot machines, contexts;
    machines.title = fmt::format("{} on {}", flags.model, flags.machines);
    machines.x_label = "machines";
    machines.y_label = "tok/s";
    machines.curves = {{fmt::format("batch {}", flags.load.batch), PointsOf(scaling.strong)},
                       {fmt::format("batch {} each", flags.load.batch), PointsOf(scaling.weak)}};
    contexts.title = "Speed by context";
    contexts.x_label = "tokens of context";
    contexts.y_label = "tok/s";
    contexts.x_is_bytes = true;
    contexts.curves = {{best.name, PointsOf(scaling.context)}};
    std::string svg =
        fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:g}\" height=\"{:g}\">\n",
                    kPanelWidth, 3 * kPanelHeight);
    svg += Panel(PlotSvg(machines), 0);
    svg += Panel(PlotSvg(contexts), kPanelHeight);
    svg += Panel(MemorySvg(best), 2 * kPanelHeight);
    return svg + "</svg>\n";
}

std::string Bar(double value, double most) {
    const auto columns = static_cast<int>(std::lround(value / most * kBarColumns));
    std::string bar;
    for (int i = 0; i < std::max(columns, 1); ++i) bar += "█";
    return bar;
}

void PrintBars(const char* title, const char* unit, const std::vector<plan::ScalingPoint>& points) {
    if (points.empty()) return;
    PrintOut("\n{}\n", title);
    const double most = std::ranges::max_element(points, {}, &plan::ScalingPoint::tok_s)->tok_s;
    for (const plan::ScalingPoint& point : points) {
        PrintOut("{:>9.0f} {:<9} {:>10.1f} tok/s  {:<10} {}\n", point.x, unit, point.tok_s,
                 point.layout, Bar(point.tok_s, most));
    }
}

}  // namespace

Status CheckPlotName(const std::string& name) {
    if (name.empty() || name == "-" || name.ends_with(".svg") || name.ends_with(".png")) return {};
    return MakeError(ErrorCode::kUsage,
                     "--plot: expected NAME.svg, NAME.png, or - for the terminal; got '{}'", name);
}

Status DrawPlan(const PlanFlags& flags, const plan::Scaling& scaling,
                const plan::Prediction& best) {
    if (flags.plot != "-") return WriteDrawing(flags.plot, PlanSvg(flags, scaling, best));
    PrintBars("Speed by machines", "machines", scaling.strong);
    PrintBars("Speed by machines, each with its own batch", "machines", scaling.weak);
    PrintBars("Speed by context", "tokens", scaling.context);
    PrintOut("\nMemory by rank, GB ({})\n", best.name);
    for (size_t i = 0; i < std::min(best.memory.size(), kMostBars); ++i) {
        const plan::MemoryUse& use = best.memory[i];
        PrintOut("{:>9} {:>8.1f} of {:>6.1f}  {}\n", use.rank, use.total() * 1e-9, use.room * 1e-9,
                 Bar(use.total(), std::max(use.total(), use.room)));
    }
    return {};
}

}  // namespace weft::cli
