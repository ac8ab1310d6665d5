// weft models: the architectures that can be run. docs/models.md holds what it prints.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "model/model.h"

namespace weft::cli {
namespace {

constexpr const char* kModelsFooter =
    "Examples:\n"
    "  weft models\n"
    "  weft models --json";

void PrintModels(bool as_json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    std::string table =
        "| Architecture | Models | Beyond the usual | Tested as |\n|---|---|---|---|\n";
    for (const model::Family& family : model::Families()) {
        list.push_back({{"architecture", family.architecture},
                        {"models", family.models},
                        {"features", family.features},
                        {"tested", family.tested}});
        table += fmt::format("| `{}` | {} | {} | {} |\n", family.architecture, family.models,
                             family.features, family.tested);
    }
    PrintOut("{}", as_json ? list.dump() + "\n" : table);
}

}  // namespace

void AddModels(const Command& app) {
    const auto json = std::make_shared<bool>(false);
    const Command command = app.AddCommand("models", "The architectures that can be run");
    command.Footer(kModelsFooter);
    AddJson(command, *json);
    command.Callback([json] { PrintModels(*json); });
}

}  // namespace weft::cli
