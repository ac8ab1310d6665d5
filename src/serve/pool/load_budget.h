// The remaining time of each API key for loads of models. A load that a key's request causes counts
// as work of that key, so no key can make a server load and unload without end.
//
// A key may have models loaded for `share` of the time. It may use two minutes' share at once, and
// a load may take more than remains: the next load then waits longer. Thread: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace weft::serve {

class LoadBudget {
  public:
    // share: 0 to 1; 1: no limit.
    explicit LoadBudget(double share) : share_(share) {}

    // Time until a request of `key` may cause a load; 0: now.
    int64_t WaitMs(const std::string& key, int64_t now_ms);
    // A load uses `load_ms` of the key's time; a negative amount returns time.
    void Charge(const std::string& key, int64_t load_ms, int64_t now_ms);

  private:
    struct Left {
        double ms = 0;
        int64_t at_ms = 0;
    };
    double most_ms() const { return share_ * 120'000; }
    Left& Fill(const std::string& key, int64_t now_ms);

    const double share_;
    std::map<std::string, Left> keys_;  // absent keys have all their time
};

}  // namespace weft::serve
