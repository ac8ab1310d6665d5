// Activations without a gate against their formulas in double.
#include "kernels/ungated.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weft::kernels {
namespace {

double Formula(Ungated kind, const Xielu& f, double x) {
    switch (kind) {
        case Ungated::kReluSquared: return x > 0 ? x * x : 0;
        case Ungated::kGeluTanh:
            return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
        case Ungated::kXielu: break;
        case Ungated::kRelu: return x > 0 ? x : 0;
        case Ungated::kGelu: return x / 2 * std::erfc(-x / std::sqrt(2.0));
        case Ungated::kSilu: return x / (1 + std::exp(-x));
        case Ungated::kClamp: return std::clamp<double>(x, -f.above, f.above);
    }
    if (x > 0) return f.above * x * x + f.beta * x;
    return f.below * (std::expm1(std::min<double>(x, f.eps)) - x) + f.beta * x;
}

TEST(Activate, EqualsTheFormula) {
    const Xielu xielu{0.6f, 0.9f, 0.5f, -1e-6f};
    std::vector<float> x = {0.0f, -0.0f, 1e-8f, -1e-8f, -1e-6f};
    for (float size = 1e-5f; size < 40; size *= 1.7f) x.insert(x.end(), {size, -size});
    for (const Ungated kind : kEveryUngated) {
        std::vector<float> y(x.size(), NAN);
        const auto count = static_cast<int64_t>(x.size());
        for (int part = 0; part < 3; ++part) {
            Activate({x.data(), y.data(), 1, count, kind, xielu}, part, 3);
        }
        for (size_t i = 0; i < x.size(); ++i) {
            const double want = Formula(kind, xielu, x[i]), u = std::fabs(x[i]);
            // A rounding of GELU's exponent counts as often as it is large; xIELU's terms may
            // cancel.
            const double steep = kind == Ungated::kGeluTanh ? 2 * u * (1 + u * u)
                                 : kind == Ungated::kGelu   ? 2 * u * u
                                 : kind == Ungated::kSilu   ? u
                                                            : 0;
            const double terms = kind == Ungated::kXielu ? u : 0;
            const double bound = 0x1p-23 * ((6 + steep) * std::fabs(want) + 2 * terms) + 1e-37;
            EXPECT_FALSE(!(std::fabs(y[i] - want) <= bound)) << UngatedName(kind) << " " << x[i];
        }
    }
}

TEST(Activate, KeepsNaN) {
    const float x = NAN;
    for (const Ungated kind : kEveryUngated) {
        float y = 0;
        Activate({&x, &y, 1, 1, kind, {0.6f, 0.9f, 0.5f, -1e-6f}}, 0, 1);
        EXPECT_TRUE(std::isnan(y)) << UngatedName(kind);
    }
}

TEST(ActivateGrad, IsTheSlopeOfTheFormula) {
    const Xielu xielu{0.6f, 0.9f, 0.5f, -1e-6f};
    std::vector<float> x;
    for (float size = 1e-2f; size < 40; size *= 1.7f) x.insert(x.end(), {size, -size});
    const std::vector<float> dy(x.size(), 3.0f);
    for (const Ungated kind : kEveryUngated) {
        std::vector<float> dx(x.size(), NAN);
        const auto count = static_cast<int64_t>(x.size());
        for (int part = 0; part < 3; ++part) {
            ActivateGrad({dy.data(), x.data(), dx.data(), 1, count, kind, xielu}, part, 3);
        }
        for (size_t i = 0; i < x.size(); ++i) {
            const double h = 1e-5, more = Formula(kind, xielu, x[i] + h);
            const double slope = (more - Formula(kind, xielu, x[i] - h)) / (2 * h);
            EXPECT_NEAR(dx[i], 3 * slope, 1e-5 * (1 + std::fabs(slope)))
                << UngatedName(kind) << " " << x[i];
        }
    }
}

}  // namespace
}  // namespace weft::kernels
