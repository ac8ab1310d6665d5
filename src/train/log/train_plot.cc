#include "train/log/train_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/utf8.h"

namespace weft::train {
namespace {

constexpr double kWidth = 860, kPanel = 250, kLeft = 76, kRight = 24, kTop = 44, kBottom = 40;
constexpr double kHead = 30, kLegendStep = 18;
constexpr size_t kMostPieces = 1000;
// Colors that color-blind readers can tell apart.
constexpr std::array kColours{"#0b62a4", "#d1540f", "#2a8c4a", "#8e4ec6", "#b0851a", "#c2255c"};
constexpr std::array kUsual{"loss", "eval_loss", "lr", "tokens_per_s", "grad_norm"};

// Larger values leave no room for arithmetic; not-a-number isn't drawn either.
constexpr double kMostDrawn = 1e300, kLeastDrawn = 1e-300;

using Point = std::pair<double, double>;

// Escapes text for XML, and replaces bytes that are not UTF-8.
std::string Escape(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const size_t length = CodePointLength(text, at);
        const char c = text[at];
        if (length == 0) {
            out += "\xEF\xBF\xBD";
        } else if (length > 1) {
            out += text.substr(at, length);
        } else if (c == '<') {
            out += "&lt;";
        } else if (c == '>') {
            out += "&gt;";
        } else if (c == '&') {
            out += "&amp;";
        } else {
            out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
        }
        at += length > 0 ? length : InvalidLength(text, at);
    }
    return out;
}

struct Axis {
    double low = 0, high = 1, step = 1;

    // Round numbers around [from, to], in about five steps.
    static Axis Around(double from, double to) {
        // (A smaller difference is rounding error, and ticks would coincide.)
        if (!(to - from > std::max(std::abs(from), std::abs(to)) * 1e-12 + kLeastDrawn)) {
            const double half = from == 0 ? 1 : std::abs(from) * 0.1 + kLeastDrawn;
            from -= half;
            to += half;
        }
        const double rough = (to - from) / 5;
        const double power = std::pow(10, std::floor(std::log10(rough)));
        Axis axis;
        axis.step = power * 10;
        for (const double digit : {5.0, 2.0, 1.0}) {
            if (digit * power >= rough) axis.step = digit * power;
        }
        axis.low = std::floor(from / axis.step + 1e-9) * axis.step;
        axis.high = std::ceil(to / axis.step - 1e-9) * axis.step;
        return axis;
    }
    double Part(double value) const { return (value - low) / (high - low); }
    int Ticks() const { return static_cast<int>(std::lround((high - low) / step)); }
};

std::string TickText(double value, double step) {
    if (std::abs(value) < step * 1e-6) return "0";
    if (std::abs(value) >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
    if (std::abs(value) >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
    return fmt::format("{:.4g}", value);
}

std::vector<Point> PointsOf(const TrainSeries& run, const std::string& column) {
    std::vector<Point> points;
    const auto found = std::ranges::find(run.columns, column);
    if (found == run.columns.end()) return points;
    const auto& values = run.values[static_cast<size_t>(found - run.columns.begin())];
    for (size_t i = 0; i < run.steps.size(); ++i) {
        if (std::abs(values[i]) <= kMostDrawn) {
            points.emplace_back(static_cast<double>(run.steps[i]), values[i]);
        }
    }
    return points;
}

// The minimum and maximum of each interval, in their order.
std::vector<Point> Thinned(const std::vector<Point>& points) {
    if (points.size() <= 2 * kMostPieces) return points;
    std::vector<Point> kept;
    for (size_t piece = 0; piece < kMostPieces; ++piece) {
        const auto begin =
            points.begin() + static_cast<ptrdiff_t>(piece * points.size() / kMostPieces);
        const auto end =
            points.begin() + static_cast<ptrdiff_t>((piece + 1) * points.size() / kMostPieces);
        const auto [least, most] = std::minmax_element(
            begin, end, [](const Point& a, const Point& b) { return a.second < b.second; });
        kept.push_back(*std::min(least, most));
        if (least != most) kept.push_back(*std::max(least, most));
    }
    return kept;
}

// An exponential mean without bias at its start.
std::vector<Point> Smoothed(const std::vector<Point>& points, double keep) {
    std::vector<Point> out;
    double mean = 0, weight = 0;
    for (const auto& [x, y] : points) {
        mean = keep * mean + (1 - keep) * y;
        weight = keep * weight + (1 - keep);
        out.emplace_back(x, mean / weight);
    }
    return out;
}

class Panels {
  public:
    Panels(std::span<const TrainSeries> runs, double smooth) : runs_(runs), smooth_(smooth) {}

    std::string Draw(const std::vector<std::string>& columns) {
        const double legend =
            runs_.size() > 1 ? kLegendStep * static_cast<double>(runs_.size()) : 0;
        const double height = kHead + legend + kPanel * static_cast<double>(columns.size());
        out_ = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
            "height=\"{1:g}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
            "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#fff\"/>\n",
            kWidth, height);
        for (size_t i = 0; i < runs_.size(); ++i) {
            const double y = 24 + kLegendStep * static_cast<double>(i);
            out_ += fmt::format(
                "<text x=\"{:g}\" y=\"{:g}\" font-weight=\"bold\" fill=\"{}\">{}</text>\n", kLeft,
                y, Colour(i), Escape(runs_[i].path));
        }
        double low = HUGE_VAL, high = -HUGE_VAL;
        for (const TrainSeries& run : runs_) {
            low = std::min(low, static_cast<double>(run.steps.front()));
            high = std::max(high, static_cast<double>(run.steps.back()));
        }
        x_ = Axis::Around(low, high);
        x_.low = std::max(0.0, x_.low);
        double top = kHead + legend;
        for (const std::string& column : columns) {
            DrawPanel(column, top);
            top += kPanel;
        }
        return out_ + "</svg>\n";
    }

  private:
    static const char* Colour(size_t run) { return kColours[run % kColours.size()]; }
    double X(double value) const { return kLeft + x_.Part(value) * (kWidth - kLeft - kRight); }
    double Y(double value) const {
        return top_ + kTop + (1 - y_.Part(value)) * (kPanel - kTop - kBottom);
    }

    void DrawPanel(const std::string& column, double top) {
        std::vector<std::vector<Point>> curves;
        double low = HUGE_VAL, high = -HUGE_VAL;
        for (const TrainSeries& run : runs_) {
            curves.push_back(PointsOf(run, column));
            for (const auto& [x, y] : curves.back()) {
                low = std::min(low, y);
                high = std::max(high, y);
            }
        }
        top_ = top;
        y_ = high >= low ? Axis::Around(low, high) : Axis();
        out_ += fmt::format(
            "<text x=\"{:g}\" y=\"{:g}\" font-size=\"14\" font-weight=\"bold\">{}</text>\n", kLeft,
            top + kTop - 12, Escape(column));
        DrawGrid();
        for (size_t i = 0; i < curves.size(); ++i) {
            if (smooth_ > 0) DrawCurve(Thinned(curves[i]), Colour(i), 0.25);
            DrawCurve(Thinned(smooth_ > 0 ? Smoothed(curves[i], smooth_) : curves[i]), Colour(i),
                      1);
        }
    }

    void DrawGrid() {
        for (int i = 0; i <= y_.Ticks(); ++i) {
            const double value = y_.low + i * y_.step;
            Line(kLeft, Y(value), kWidth - kRight, Y(value));
            Words(kLeft - 8, Y(value) + 4, "end", TickText(value, y_.step));
        }
        for (int i = 0; i <= x_.Ticks(); ++i) {
            const double value = x_.low + i * x_.step;
            if (value > x_.high * (1 + 1e-9)) break;
            Line(X(value), Y(y_.low), X(value), Y(y_.high));
            Words(X(value), Y(y_.low) + 18, "middle", TickText(value, x_.step));
        }
        Words(kWidth - kRight, Y(y_.low) + 34, "end", "step");
    }

    void DrawCurve(const std::vector<Point>& points, const char* colour, double opacity) {
        if (points.empty()) return;
        if (points.size() == 1) {
            out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                                X(points[0].first), Y(points[0].second), colour);
            return;
        }
        out_ += fmt::format(
            "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" stroke-opacity=\"{:g}\" "
            "stroke-linejoin=\"round\" points=\"",
            colour, opacity);
        for (const auto& [x, y] : points) out_ += fmt::format("{:.1f},{:.1f} ", X(x), Y(y));
        out_.back() = '"';
        out_ += "/>\n";
    }

    void Line(double x1, double y1, double x2, double y2) {
        out_ += fmt::format(
            "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e2e2e2\"/>\n",
            x1, y1, x2, y2);
    }
    void Words(double x, double y, const char* anchor, const std::string& text) {
        out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                            anchor, Escape(text));
    }

    std::span<const TrainSeries> runs_;
    double smooth_, top_ = 0;
    Axis x_, y_;
    std::string out_;
};

bool Has(std::span<const TrainSeries> runs, std::string_view column) {
    return std::ranges::any_of(runs, [&](const TrainSeries& run) {
        return std::ranges::find(run.columns, column) != run.columns.end();
    });
}

}  // namespace

Result<std::string> TrainPlotSvg(std::span<const TrainSeries> runs,
                                 const TrainPlotOptions& options) {
    if (!(options.smooth >= 0 && options.smooth < 1)) {
        return MakeError(ErrorCode::kUsage, "smoothing of {}; expected 0 to below 1",
                         options.smooth);
    }
    std::string there;
    for (const TrainSeries& run : runs) {
        for (const std::string& column : run.columns) {
            if (there.find("'" + column + "'") == there.npos) there += " '" + column + "'";
        }
    }
    std::vector<std::string> columns = options.columns;
    for (const std::string& column : columns) {
        if (!Has(runs, column)) {
            return MakeError(ErrorCode::kUsage, "no column '{}'; there are{}", column, there);
        }
    }
    for (const char* usual : kUsual) {
        if (options.columns.empty() && Has(runs, usual)) columns.emplace_back(usual);
    }
    if (columns.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "none of the usual columns; name some of{} with --columns", there);
    }
    return Panels(runs, options.smooth).Draw(columns);
}

}  // namespace weft::train
