#include "cli/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>

#include "base/child_process.h"
#include "base/file.h"
#include "cli/sizes.h"

namespace weft::cli {
namespace {

constexpr double kWidth = 860, kHeight = 520;
constexpr double kLeft = 76, kTop = 56, kBottom = 60;
constexpr double kPlotWidth = 600;  // the names are to the right
constexpr double kPlotHeight = kHeight - kTop - kBottom;
constexpr double kNameStep = 17;
// Colors that color-blind readers can tell apart; further lines repeat them dashed.
constexpr std::array kColours{"#0b62a4", "#d1540f", "#2a8c4a", "#8e4ec6", "#b0851a", "#c2255c"};

std::string Escape(const std::string& text) {
    std::string out;
    for (char c : text) {
        if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '&')
            out += "&amp;";
        else
            out += c;
    }
    return out;
}

// One logarithmic axis.
struct Axis {
    double low = 1, high = 10;
    double Part(double value) const { return std::log(value / low) / std::log(high / low); }
};

std::string NumberText(double value) {
    return value >= 1e6   ? fmt::format("{:g}M", value / 1e6)
           : value >= 1e3 ? fmt::format("{:g}k", value / 1e3)
                          : fmt::format("{:g}", value);
}

class Drawing {
  public:
    explicit Drawing(const Plot& plot) : plot_(plot) {
        double low_x = HUGE_VAL, high_x = 0, low_y = HUGE_VAL, high_y = 0;
        for (const Curve& curve : plot.curves) {
            for (const auto& [x, y] : curve.points) {
                low_x = std::min(low_x, x);
                high_x = std::max(high_x, x);
                low_y = std::min(low_y, y);
                high_y = std::max(high_y, y);
            }
        }
        if (high_x <= 0 || high_y <= 0) return;
        const double base = plot.x_is_bytes ? 2 : 10;
        x_.low = std::pow(base, std::floor(std::log(low_x) / std::log(base) + 1e-9));
        x_.high = std::pow(base, std::ceil(std::log(high_x) / std::log(base) - 1e-9));
        y_.low = std::pow(10, std::floor(std::log10(low_y)));
        y_.high = std::pow(10, std::ceil(std::log10(high_y)));
        if (!(x_.high > x_.low)) x_.high = x_.low * base;
        if (!(y_.high > y_.low)) y_.high = y_.low * 10;
    }

    std::string Text() {
        out_ = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
            "height=\"{1:g}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
            "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#fff\"/>\n"
            "<text x=\"{2:g}\" y=\"30\" font-size=\"16\" font-weight=\"bold\">{3}</text>\n",
            kWidth, kHeight, kLeft, Escape(plot_.title));
        AddGrid();
        AddLabels();
        AddCurves();
        return out_ + "</svg>\n";
    }

  private:
    double X(double value) const { return kLeft + x_.Part(value) * kPlotWidth; }
    double Y(double value) const { return kTop + (1 - y_.Part(value)) * kPlotHeight; }

    void Line(double x1, double y1, double x2, double y2, const char* colour) {
        out_ += fmt::format(
            "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1,
            y1, x2, y2, colour);
    }
    void Words(double x, double y, const char* anchor, const std::string& text,
               const std::string& more = "") {
        out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x,
                            y, anchor, more, Escape(text));
    }

    void AddGrid() {
        constexpr const char* kFaint = "#ececec";
        constexpr const char* kStrong = "#cfcfcf";
        const double bottom = kTop + kPlotHeight, right = kLeft + kPlotWidth;
        for (double decade = y_.low; decade <= y_.high * 1.001; decade *= 10) {
            for (int digit = 2; digit < 10 && decade < y_.high * 0.999; ++digit) {
                Line(kLeft, Y(decade * digit), right, Y(decade * digit), kFaint);
            }
            Line(kLeft, Y(decade), right, Y(decade), kStrong);
            Words(kLeft - 8, Y(decade) + 4, "end", NumberText(decade));
        }
        // At most a dozen labels.
        const double base = plot_.x_is_bytes ? 2 : 10;
        const int ticks =
            static_cast<int>(std::lround(std::log(x_.high / x_.low) / std::log(base)));
        const int step = std::max(1, (ticks + 11) / 12);
        for (int i = 0; i <= ticks; ++i) {
            const double value = x_.low * std::pow(base, i);
            const bool labelled = i % step == 0;
            Line(X(value), kTop, X(value), bottom, labelled ? kStrong : kFaint);
            if (!labelled) continue;
            Words(
                X(value), bottom + 18, "middle",
                plot_.x_is_bytes && value >= 1 ? SizeText(std::llround(value)) : NumberText(value));
        }
        Line(kLeft, bottom, right, bottom, "#444");
        Line(kLeft, kTop, kLeft, bottom, "#444");
    }

    void AddLabels() {
        Words(kLeft + kPlotWidth / 2, kHeight - 18, "middle", plot_.x_label);
        const double middle = kTop + kPlotHeight / 2;
        Words(20, middle, "middle", plot_.y_label,
              fmt::format(" transform=\"rotate(-90 20 {:.1f})\"", middle));
    }

    void AddCurves() {
        struct Name {
            double y;
            size_t curve;
        };
        std::vector<Name> names;
        for (size_t i = 0; i < plot_.curves.size(); ++i) {
            const Curve& curve = plot_.curves[i];
            if (curve.points.empty()) continue;
            const char* colour = kColours[i % kColours.size()];
            const char* dash = i < kColours.size() ? "" : " stroke-dasharray=\"6 4\"";
            std::string points;
            for (const auto& [x, y] : curve.points) {
                points += fmt::format("{:.1f},{:.1f} ", X(x), Y(y));
                out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                                    X(x), Y(y), colour);
            }
            out_ += fmt::format(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n",
                points, colour, dash);
            names.push_back({Y(curve.points.back().second), i});
        }
        // Next to the lines' ends, without overlaps.
        std::ranges::sort(names, {}, &Name::y);
        for (size_t i = 1; i < names.size(); ++i) {
            names[i].y = std::max(names[i].y, names[i - 1].y + kNameStep);
        }
        const double most = kTop + kPlotHeight;
        for (size_t i = names.size(); i-- > 0;) {
            const double limit = i + 1 < names.size() ? names[i + 1].y - kNameStep : most;
            names[i].y = std::min(names[i].y, limit);
        }
        for (const Name& name : names) {
            Words(kLeft + kPlotWidth + 12, name.y + 4, "start", plot_.curves[name.curve].name,
                  fmt::format(" fill=\"{}\"", kColours[name.curve % kColours.size()]));
        }
    }

    const Plot& plot_;
    Axis x_, y_;
    std::string out_;
};

constexpr int64_t kDrawMs = 60'000;

// Writes the SVG's text as a PNG at twice the resolution.
Status WritePngFile(const std::string& path, const std::string& svg) {
    const std::string between = path + ".svg.tmp";
    WEFT_TRY(WriteFile(between, std::as_bytes(std::span(svg))));
    const auto ran =
        RunChild({"rsvg-convert", "--zoom", "2", "--format", "png", "--output", path, between},
                 Deadline::In(kDrawMs));
    std::error_code ignored;
    std::filesystem::remove(between, ignored);
    if (ran.ok() && ran->status == 0) return {};
    if (!ran.ok() && ran.error().code != ErrorCode::kNotFound) return ran.error();
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {}. Install rsvg-convert (Debian's package librsvg2-bin), or name a file "
                     "that ends with .svg",
                     path, ran.ok() ? "rsvg-convert failed: " + ran->err : ran.error().message);
}

}  // namespace

Status WriteDrawing(const std::string& path, const std::string& svg) {
    if (path.ends_with(".png")) return WritePngFile(path, svg);
    return WriteFile(path, std::as_bytes(std::span(svg)));
}

std::string PlotSvg(const Plot& plot) {
    return Drawing(plot).Text();
}

Plot NetPlot(const std::vector<fabric::NetReport>& reports) {
    Plot plot;
    plot.x_is_bytes = true;
    plot.x_label = "size in bytes";
    if (reports.empty()) return plot;
    const fabric::NetOp op = reports.front().op;
    const bool bandwidth = op == fabric::NetOp::kBandwidth;
    plot.y_label = bandwidth ? "MiB/s" : "microseconds, median";
    plot.title =
        fmt::format("weft net {}, {} ranks", fabric::NetOpName(op), reports.front().ranks());
    const bool one_wire = std::ranges::all_of(reports, [](const fabric::NetReport& report) {
        return std::ranges::all_of(report.rows,
                                   [](const fabric::NetRow& row) { return row.wire == "full"; });
    });
    for (const fabric::NetReport& report : reports) {
        std::map<std::string, std::map<int64_t, double>> lines;
        std::vector<std::string> order;
        for (const fabric::NetRow& row : report.rows) {
            std::string name = report.transport;
            if (!fabric::IsOfPairs(op)) name += " " + row.asked;
            if (!one_wire) name += " " + row.wire;
            if (!lines.contains(name)) order.push_back(name);
            const double value =
                bandwidth ? row.average_bytes_s / (1024.0 * 1024.0) : row.timings.typical_us;
            const auto [at, fresh] = lines[name].try_emplace(row.size, value);
            const bool worse = bandwidth ? value < at->second : value > at->second;
            if (!fresh && worse) at->second = value;
        }
        for (const std::string& name : order) {
            Curve& curve = plot.curves.emplace_back(Curve{name, {}});
            for (const auto& [size, value] : lines[name]) {
                if (value > 0) curve.points.emplace_back(static_cast<double>(size), value);
            }
        }
    }
    return plot;
}

}  // namespace weft::cli
