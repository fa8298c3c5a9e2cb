# SPDX-License-Identifier: Apache-2.0
"""A tool: the weather to expect in a city.

    brig tool run examples/weather.py --args '{"city": "Oslo"}'

It asks nobody (a sandbox has no network unless a policy gives it one): what it knows are the means of each month.
"""

import datetime
from typing import Optional

MEANS = {  # degrees Celsius, January to December
    "Cairo": (14, 15, 18, 22, 25, 28, 28, 28, 27, 24, 19, 15),
    "Lima": (23, 24, 24, 22, 20, 18, 17, 17, 17, 18, 20, 21),
    "Oslo": (-2, -2, 1, 6, 12, 16, 18, 17, 12, 7, 2, -2),
    "Quito": (14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14, 14),
    "Tokyo": (5, 6, 9, 14, 19, 22, 26, 27, 23, 18, 13, 8),
}


def weather(city: str, month: Optional[int] = None) -> dict:
    """The weather to expect in a city.

    Args:
        city: name of the city
        month: 1 to 12; without it the present one
    """
    if city not in MEANS:
        raise ValueError(f"no weather for {city!r}, only for {', '.join(sorted(MEANS))}")
    if month is None:
        month = datetime.date.today().month
    mean = MEANS[city][month - 1]
    print(f"looked up {city}, month {month}")
    return {"city": city, "month": month, "mean_celsius": mean,
            "advice": "a coat" if mean < 10 else "a hat" if mean > 22 else "nothing special"}
