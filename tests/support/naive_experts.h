// Ops of experts as naive loops over a real type; part of naive_ops.h. A value [T, K, n] is T rows
// of K * n columns; a stack [m, n, k] is m rows of n * k.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "program/program.h"
#include "support/naive_ops.h"

namespace weft::support::naive {

template <typename Real>
std::vector<Real> Scores(const program::Route& a, const Matrix<Real>& logits, int64_t row) {
    std::vector<Real> scores;
    Real sum = 0;
    for (int64_t e = 0; e < logits.cols(); ++e) {
        const Real power = std::exp(logits(row, e));
        switch (a.score) {
            case program::GateScore::kSoftmax: scores.push_back(power); break;
            case program::GateScore::kSigmoid: scores.push_back(1 / (1 + 1 / power)); break;
            case program::GateScore::kSparseMixer: scores.push_back(0); break;  // SparseWeight
            case program::GateScore::kSqrtSoftplus:
                scores.push_back(std::sqrt(std::log(1 + power)));
        }
        sum += power;
    }
    const bool softmax = a.score == program::GateScore::kSoftmax;
    for (Real& score : scores) score /= softmax ? sum : Real{1};
    return scores;
}

// Masks the expert groups with the lowest best scores.
template <typename Real>
void CloseGroups(const program::Route& a, std::vector<Real>& ranking) {
    const size_t groups = static_cast<size_t>(a.groups), size = ranking.size() / groups;
    std::vector<Real> sums;
    for (size_t g = 0; g < groups; ++g) {
        std::vector<Real> own(ranking.begin() + static_cast<int64_t>(g * size),
                              ranking.begin() + static_cast<int64_t>((g + 1) * size));
        std::ranges::sort(own, std::greater{});
        Real sum = 0;
        for (int64_t i = 0; i < a.group_best; ++i) sum += own[static_cast<size_t>(i)];
        sums.push_back(sum);
    }
    for (int64_t closed = a.groups_used; closed < a.groups; ++closed) {
        const auto lowest = std::ranges::min_element(sums);
        const auto g = static_cast<size_t>(lowest - sums.begin());
        for (size_t e = g * size; e < (g + 1) * size; ++e) ranking[e] = Real{-1e30};
        *lowest = Real{1e30};
    }
}

// The weight of the best of the experts that remain.
template <typename Real>
Real SparseWeight(const program::Route& a, const std::vector<Real>& ranking) {
    const Real most = *std::ranges::max_element(ranking);
    Real sum = 0;
    for (const Real x : ranking) {
        const bool near = (most - x) / std::max(std::abs(x), most) <= Real{a.jitter};
        if (x > Real{-1e29} && near) sum += std::exp(x - most);
    }
    return 1 / sum;
}

template <typename Real>
void Do(const program::Route& a, OpCall<Real>& c) {
    for (int64_t row = 0; row < c.in[0].rows; ++row) {
        const std::vector<Real> scores = Scores(a, c.in[0], row);
        std::vector<Real> ranking = scores;
        const bool by_logit = c.in.size() == 1 && a.groups <= 1;
        for (size_t e = 0; e < ranking.size() && by_logit; ++e) {
            ranking[e] = c.in[0](row, static_cast<int64_t>(e));
        }
        for (size_t e = 0; e < ranking.size() && c.in.size() > 1 && !a.by_token; ++e) {
            ranking[e] += c.in[1].data[e];
        }
        if (a.groups > 1) CloseGroups(a, ranking);
        Real sum = 0;
        for (int64_t k = 0; k < c.out[0].cols(); ++k) {
            const auto best =
                a.by_token ? ranking.begin() + c.in[2].Int(c.in[1].Int(row) * c.out[0].cols() + k)
                           : std::ranges::max_element(ranking);
            const auto id = static_cast<size_t>(best - ranking.begin());
            c.out[0](row, k) = static_cast<Real>(id);
            const bool mixes = a.score == program::GateScore::kSparseMixer;
            c.out[1](row, k) = mixes ? SparseWeight(a, ranking) : scores[id];
            sum += scores[id];
            *best = Real{-1e30};
        }
        for (int64_t k = 0; k < c.out[0].cols(); ++k) {
            c.out[1](row, k) *= Real{a.scale} / (a.renormalise ? sum : Real{1});
        }
    }
}

// Uses the chain rule over all scores, one expert's logit at a time.
template <typename Real>
void Do(const program::RouteGrad& grad, OpCall<Real>& c) {
    const program::Route& a = grad.forward;
    const int64_t experts = c.in[1].cols(), used = c.in[0].cols();
    for (int64_t row = 0; row < c.in[0].rows; ++row) {
        const std::vector<Real> scores = Scores(a, c.in[1], row);
        const auto id = [&](int64_t k) { return static_cast<size_t>(c.in[2](row, k)); };
        Real sum = 0;
        for (int64_t k = 0; k < used; ++k) sum += scores[id(k)];
        for (int64_t k = 0; k < used; ++k) {
            for (int64_t other = 0; other < used; ++other) {
                const Real same = other == k ? Real{1} : Real{0};
                const Real slope = a.renormalise ? same / sum - scores[id(k)] / (sum * sum) : same;
                const Real dscore = c.in[0](row, k) * slope * Real{a.scale};
                const Real score = scores[id(other)];
                for (int64_t e = 0; e < experts; ++e) {
                    const Real self = static_cast<size_t>(e) == id(other) ? Real{1} : Real{0};
                    const Real rest = a.score == program::GateScore::kSigmoid
                                          ? self * (1 - score)
                                          : self - scores[static_cast<size_t>(e)];
                    c.out[0](row, e) += dscore * score * rest;
                }
            }
        }
    }
}

// Calls f(token, k, row in a stack that begins with expert `first`) for the rank's experts.
template <typename Real, typename F>
void ForSlots(const Matrix<Real>& ids, int64_t first, int64_t count, const F& f) {
    for (int64_t t = 0; t < ids.rows; ++t) {
        for (int64_t k = 0; k < ids.cols(); ++k) {
            const int64_t expert = static_cast<int64_t>(ids(t, k)) - first;
            if (expert >= 0 && expert < count) f(t, k, expert);
        }
    }
}

template <typename Real>
void Do(const program::IdentityExperts& a, OpCall<Real>& c) {
    for (int64_t t = 0; t < c.in[0].rows; ++t) {
        Real sum = 0;
        for (int64_t k = 0; k < c.in[1].cols(); ++k) {
            if (static_cast<int64_t>(c.in[1](t, k)) >= a.first) sum += c.in[2](t, k);
        }
        for (int64_t i = 0; i < c.in[0].cols(); ++i) c.out[0](t, i) = sum * c.in[0](t, i);
    }
}

template <typename Real>
void Do(const program::WeighRows& a, OpCall<Real>& c) {
    const Matrix<Real>&x = c.in[0], &ids = c.in[1], &weights = c.in[2];
    std::ranges::fill(c.out[1].data, Real{1});
    ForSlots(ids, a.first_expert, a.experts, [&](int64_t t, int64_t k, int64_t) {
        for (int64_t l = 0; l < x.cols(); ++l) {
            c.out[0](t, k * x.cols() + l) = weights(t, k) * x(t, l);
        }
    });
}

// x has one row per token, or one per chosen expert.
template <typename Real>
void Do(const program::ExpertMatMul& a, OpCall<Real>& c) {
    const Matrix<Real>&x = c.in[0], &ids = c.in[1], &weight = c.in[2];
    const int64_t rows = c.out[0].cols() / ids.cols(), cols = weight.cols() / rows;
    const bool by_token = x.cols() == cols;
    ForSlots(ids, a.first_expert, weight.rows, [&](int64_t t, int64_t k, int64_t e) {
        for (int64_t j = 0; j < rows; ++j) {
            for (int64_t l = 0; l < cols; ++l) {
                c.out[0](t, k * rows + j) +=
                    x(t, by_token ? l : k * cols + l) * weight(e, j * cols + l);
            }
        }
    });
}

template <typename Real>
void Do(const program::ExpertMatMulGradInput& a, OpCall<Real>& c) {
    const Matrix<Real>&dy = c.in[0], &ids = c.in[1], &weight = c.in[2];
    const int64_t cols = c.out[0].cols(), rows = weight.cols() / cols;
    ForSlots(ids, a.first_expert, weight.rows, [&](int64_t t, int64_t k, int64_t e) {
        for (int64_t j = 0; j < rows; ++j) {
            for (int64_t l = 0; l < cols; ++l) {
                c.out[0](t, l) += dy(t, k * rows + j) * weight(e, j * cols + l);
            }
        }
    });
}

template <typename Real>
void Do(const program::ExpertMatMulGradWeight& a, OpCall<Real>& c) {
    const Matrix<Real>&dy = c.in[0], &x = c.in[1], &ids = c.in[2], &dw = c.out[0];
    const int64_t cols = x.cols(), rows = dw.cols() / cols;
    ForSlots(ids, a.first_expert, dw.rows, [&](int64_t t, int64_t k, int64_t e) {
        for (int64_t j = 0; j < rows; ++j) {
            for (int64_t l = 0; l < cols; ++l) {
                dw(e, j * cols + l) += dy(t, k * rows + j) * x(t, l);
            }
        }
    });
}

template <typename Real>
void Do(const program::ExpertSum& a, OpCall<Real>& c) {
    const Matrix<Real>&x = c.in[0], &ids = c.in[1], &weights = c.in[2], &weight = c.in[3];
    const int64_t cols = x.cols() / ids.cols(), rows = c.out[0].cols();
    if (a.base) c.out[0].data = c.in.back().data;
    ForSlots(ids, a.first_expert, weight.rows, [&](int64_t t, int64_t k, int64_t e) {
        for (int64_t j = 0; j < rows; ++j) {
            for (int64_t l = 0; l < cols; ++l) {
                c.out[0](t, j) += weights(t, k) * x(t, k * cols + l) * weight(e, j * cols + l);
            }
        }
    });
}

template <typename Real>
void Do(const program::ExpertSumGradInput& a, OpCall<Real>& c) {
    const Matrix<Real>&dy = c.in[0], &x = c.in[1], &ids = c.in[2], &weights = c.in[3],
          &weight = c.in[4];
    const int64_t cols = x.cols() / ids.cols(), rows = dy.cols();
    ForSlots(ids, a.first_expert, weight.rows, [&](int64_t t, int64_t k, int64_t e) {
        for (int64_t j = 0; j < rows; ++j) {
            for (int64_t l = 0; l < cols; ++l) {
                const Real through = dy(t, j) * weight(e, j * cols + l);
                c.out[0](t, k * cols + l) += through * weights(t, k);
                c.out[1](t, k) += through * x(t, k * cols + l);
            }
        }
    });
}

template <typename Real>
void Do(const program::ExpertSumGradWeight& a, OpCall<Real>& c) {
    const Matrix<Real>&dy = c.in[0], &x = c.in[1], &ids = c.in[2], &weights = c.in[3],
          &dw = c.out[0];
    const int64_t cols = x.cols() / ids.cols(), rows = dy.cols();
    ForSlots(ids, a.first_expert, dw.rows, [&](int64_t t, int64_t k, int64_t e) {
        for (int64_t j = 0; j < rows; ++j) {
            for (int64_t l = 0; l < cols; ++l) {
                dw(e, j * cols + l) += weights(t, k) * dy(t, j) * x(t, k * cols + l);
            }
        }
    });
}

template <typename Real>
void Do(const program::GateRows& a, OpCall<Real>& c) {
    const int64_t each = c.in[0].cols() / c.in[1].cols();
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        for (int64_t j = 0; j < c.in[0].cols(); ++j) {
            const Real gate = c.in[1](i, j / each);
            Real open = gate;
            if (a.gate == program::RowGate::kSigmoid) open = 1 / (1 + std::exp(-gate));
            if (a.gate == program::RowGate::kSoftplus) open = std::log(1 + std::exp(gate));
            c.out[0](i, j) = c.in[0](i, j) * open;
        }
    }
}

template <typename Real>
void Do(const program::GateRowsGrad&, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        const Real open = 1 / (1 + std::exp(-c.in[2](i, 0)));
        for (int64_t j = 0; j < c.in[0].cols(); ++j) {
            c.out[0](i, j) = c.in[0](i, j) * open;
            c.out[1](i, 0) += c.in[0](i, j) * c.in[1](i, j) * open * (1 - open);
        }
    }
}

template <typename Real>
void Do(const program::RouterLoad&, OpCall<Real>& c) {
    const int64_t experts = c.in[0].cols();
    if (c.in.size() == 3) c.out[0].data = c.in[2].data;
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        const std::vector<Real> scores = Scores(program::Route{}, c.in[0], i);
        for (int64_t e = 0; e < experts; ++e) c.out[0](1, e) += scores[static_cast<size_t>(e)];
        for (int64_t k = 0; k < c.in[1].cols(); ++k) {
            c.out[0](0, static_cast<int64_t>(c.in[1](i, k))) += 1;
        }
    }
}

template <typename Real>
void Do(const program::RouterLoadGrad&, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[1].rows; ++i) {
        const std::vector<Real> p = Scores(program::Route{}, c.in[1], i);
        for (size_t e = 0; e < p.size(); ++e) {
            for (size_t other = 0; other < p.size(); ++other) {
                const Real slope = p[other] * ((e == other ? Real{1} : Real{0}) - p[e]);
                c.out[0](i, static_cast<int64_t>(e)) +=
                    c.in[0](1, static_cast<int64_t>(other)) * slope;
            }
        }
    }
}

template <typename Real>
Real RowsOfLoad(const Matrix<Real>& load, int64_t used) {
    Real choices = 0;
    for (int64_t e = 0; e < load.cols(); ++e) choices += load(0, e);
    return choices / static_cast<Real>(used);
}

template <typename Real>
void Do(const program::LoadBalance& a, OpCall<Real>& c) {
    const Matrix<Real>& load = c.in[0];
    const Real rows = RowsOfLoad(load, a.used);
    for (int64_t e = 0; e < load.cols(); ++e) {
        c.out[0](0, 0) +=
            static_cast<Real>(load.cols()) * (load(0, e) / rows) * (load(1, e) / rows);
    }
}

template <typename Real>
void Do(const program::LoadBalanceGrad& a, OpCall<Real>& c) {
    const Matrix<Real>& load = c.in[1];
    const Real rows = RowsOfLoad(load, a.forward.used);
    for (int64_t e = 0; e < load.cols(); ++e) {
        c.out[0](1, e) = c.in[0](0, 0) * static_cast<Real>(load.cols()) * load(0, e) / rows / rows;
    }
}

}  // namespace weft::support::naive
