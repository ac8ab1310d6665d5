// Chooses a few of many Programs that have every form of an op which one of them has.
#pragma once

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "program/program.h"

namespace weft::support {

// The forms of a Program's ops: kind, number of inputs, and attributes without their numbers.
inline std::set<std::string> OpForms(const program::Program& program) {
    std::set<std::string> forms;
    std::istringstream lines(program::Print(program));
    for (const program::Op& op : program.ops) {
        std::string line, form;
        std::getline(lines, line);
        for (const char c : line.substr(line.find(')') + 1)) {
            const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
            if (!digit || !form.ends_with('#')) form += digit ? '#' : c;
        }
        forms.insert(std::string(program::OpName(op.kind())) + ' ' +
                     std::to_string(op.inputs.size()) + form);
    }
    return forms;
}

// Whether each of the Programs, of which `forms` are the OpForms, is one of the few: repeatedly the
// first of those with the most forms that the chosen ones lack.
inline std::vector<bool> FewWithAllForms(std::vector<std::set<std::string>> forms) {
    std::vector<bool> chosen(forms.size());
    while (true) {
        const auto most = std::ranges::max_element(forms, {}, &std::set<std::string>::size);
        if (most == forms.end() || most->empty()) return chosen;
        chosen[static_cast<size_t>(most - forms.begin())] = true;
        const std::set<std::string> added = *most;
        for (std::set<std::string>& each : forms) {
            for (const std::string& form : added) each.erase(form);
        }
    }
}

}  // namespace weft::support
