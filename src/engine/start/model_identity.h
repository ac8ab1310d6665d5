// The hashes by which a job recognizes its model (verify_model.h).
#pragma once

#include <string>

namespace weft::engine {

// Of the model that the ranks of a job have, and of its adapters (model_files::IdentityOf).
struct ModelIdentity {
    std::string model, adapters;  // "": not known; no adapters
    bool whole = false;           // it is known, and of whole files: another job's is comparable
};

}  // namespace weft::engine
