#include "doctor/distinct.h"

#include <fmt/format.h>

#include <utility>

namespace weft::doctor {
namespace {

class RenamedView : public HostView {
  public:
    RenamedView(std::unique_ptr<HostView> view, std::string name)
        : view_(std::move(view)), name_(std::move(name)) {}
    std::string host() const override { return name_; }
    bool Complete() const override { return view_->Complete(); }
    Reading Read(const std::string& path) override { return view_->Read(path); }
    Reading Link(const std::string& path) override { return view_->Link(path); }
    std::vector<std::string> List(const std::string& path) override { return view_->List(path); }
    Reading Command(const std::string& words) override { return view_->Command(words); }
    Reading Probe(const std::string& name) override { return view_->Probe(name); }
    Reading Later(const std::string& path) override { return view_->Later(path); }

  private:
    std::unique_ptr<HostView> view_;
    std::string name_;
};

}  // namespace

void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts, std::set<std::string> taken) {
    for (std::unique_ptr<HostView>& host : hosts) {
        const std::string given = host->host();
        std::string name = given;
        for (int count = 2; !taken.insert(name).second; ++count) {
            name = fmt::format("{} ({})", given, count);
        }
        if (name != given) host = std::make_unique<RenamedView>(std::move(host), name);
    }
}

}  // namespace weft::doctor
