# A launch with a body does not end the counting.
s/        if \(holds.uncounted\)/        if (holds.uncounted \&\& !c)/
