// Huber's loss: a parabola near 0, straight lines further out, so that one large error cannot move
// a network by more than `delta`.
//
//     loss        e^2 / 2 for |e| <= delta, else delta (|e| - delta / 2)
//     derivative  e clipped to [-delta, delta]
//
// Source: Huber 1964.
#pragma once

#include <span>

#include "reverie/base/status.h"

namespace reverie {

// Spans of one length. Thread-safe. INVALID_ARGUMENT unless delta > 0; infinity is the squared
// loss.
Status huber_losses(std::span<const float> errors, float delta, std::span<float> losses);
Status huber_derivatives(std::span<const float> errors, float delta, std::span<float> derivatives);

}  // namespace reverie
