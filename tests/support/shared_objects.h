// Objects that several tests of a program share, such as an open GPU. They are dropped after the
// last test, before main() returns. (A static would be dropped at the program's exit, after
// libraries that a driver uses have cleaned up.)
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {

class SharedObjects : public ::testing::Environment {
  public:
    // The object of this name, which `make` returns at the first use.
    template <typename Make>
    auto& Get(const std::string& name, const Make& make) {
        using Object = decltype(make());
        void*& held = by_name_[name];
        if (held == nullptr) {
            objects_.push_back(std::make_shared<Object>(make()));
            held = objects_.back().get();
        }
        return *static_cast<Object*>(held);
    }
    // Last made, first dropped.
    void TearDown() override {
        by_name_.clear();
        while (!objects_.empty()) objects_.pop_back();
    }

  private:
    std::map<std::string, void*> by_name_;
    std::vector<std::shared_ptr<void>> objects_;
};

// (GoogleTest owns it. It must know its environments before main() runs.)
inline SharedObjects* const kSharedObjects =
    static_cast<SharedObjects*>(::testing::AddGlobalTestEnvironment(new SharedObjects));

}  // namespace weft::test
